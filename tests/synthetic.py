"""Run folders as trainings leave them, with numbers that a test chooses."""

import hashlib
import json

from mmlape.lab.runs.identity import paper_model
from mmlape.lab.runs.run import write_planned
from mmlape.lab.runs.schema import Identity

STACK = {'torch': '2.11.0', 'mmengine': '0.10.12', 'mmcv': '2.3.6'}


def settings(joining='lape', patch_norm='none', arch='deit-tiny', head='SegmenterMaskTransformerHead', **more):
    """The part of a configuration that `mmlape.lab.runs.identity.settings` keeps, shortened."""
    backbone = {'type': 'mmlape.VisionTransformer', 'arch': arch, 'pe_joining': joining, 'patch_norm': patch_norm}
    backbone['init_cfg'] = {'type': 'Pretrained'}
    return {'model': {'type': 'EncoderDecoder', 'backbone': backbone, 'decode_head': {'type': head}}, **more}


def identity(seed, chosen=None, **more):
    """What is in ``run.json`` under that name."""
    chosen, loads = chosen or settings(), ['model.backbone.init_cfg.checkpoint']
    text = json.dumps(chosen, sort_keys=True)
    return {
        'settings_sha256': hashlib.sha256(text.encode()).hexdigest(),
        'seed': seed,
        'world_size': 4,
        'total_batch': 8,
        'amp': None,
        'batch_policy': 'recipe',
        'checkpoint': {'name': 'deit.pth', 'sha256': 'c' * 64},
        'loads': loads,
        'code': {'version': '0.2.0', 'source': 's' * 64, 'commit': None},
        'stack': STACK,
        'paper': vars(paper_model('', Identity(settings=chosen, loads=loads))),
        **more,
    }


def write_run(folder, seed, last, best=None, steps=(300, 200), key='mIoU', chosen=None, **more):
    """Writes ``<folder>/seed_<seed>`` and returns it.

    Args:
        folder: The arm's.
        seed: The run's.
        last: ``{metric: value}`` of its last evaluation, or mIoU's value; None for no evaluation.
        best: The same of the best one; by default the last.
        steps: Iterations of the two.
        key: What best is by; the first metric where it is none of them.
        chosen: Its settings; False for a record of an older version, without identity.
        **more: Further fields of ``run.json``, and ``per_class`` of both evaluations.
    """
    work_dir = folder / f'seed_{seed}'
    work_dir.mkdir(parents=True, exist_ok=True)
    per_class, best = more.pop('per_class', {}), last if best is None else best
    entries = []
    for step, metrics in zip(steps, (last, best)):
        metrics = {'mIoU': metrics, 'aAcc': 90.0} if isinstance(metrics, float | int) else metrics
        entries.append(None if metrics is None else {'step': step, 'metrics': metrics, 'per_class': per_class})
    if entries[1] and key not in entries[1]['metrics']:
        key = next(iter(entries[1]['metrics']))
    record = {
        'seed': seed,
        'state': 'finished',
        'reason': None,
        'iter': 300,
        'max_iters': 300,
        'last': entries[0],
        'best': entries[1] and {**entries[1], 'key': key},
        'identity': None if chosen is False else identity(seed, chosen),
        **more,
    }
    (work_dir / 'run.json').write_text(json.dumps(record))
    if chosen is not False:
        (work_dir / 'settings.json').write_text(json.dumps(chosen or settings()))
    return work_dir


def write_log(work_dir, rows, name='20260101_000000'):
    """Writes MMEngine's log of scalars; rows are dicts, or text as a kill leaves it."""
    folder = work_dir / name / 'vis_data'
    folder.mkdir(parents=True)
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    (folder / 'scalars.json').write_text('\n'.join(lines))


def write_study(work_dir, seeds=(121, 122, 123, 124, 125)):
    """Four arms as a comparison of the paper has them: Segmenter and Mask R-CNN, default PE and LaPE.

    The values differ by a shift between the arms and by a fixed pattern over the seeds.
    """
    pattern = (0.31, -0.42, 0.05, 0.27, -0.21)
    recipes = (
        ('segmenter_deit-tiny_4xb2-160k_ade20k', 'default', 36.5, 6_713_388),
        ('segmenter_deit-tiny-lape_4xb2-160k_ade20k', 'lape', 37.9, 6_717_996),
    )
    for place, (name, joining, level, parameters) in enumerate(recipes):
        for number, seed in enumerate(seeds):
            value = level + pattern[(number + 2 * place) % 5] * (1 + place / 3)
            classes = {f'class {k}': value + 3 * ((k * 7 + number + 3 * place) % 11) - 15 for k in range(30)}
            work_dir = write_run(
                work_dir / name, seed, {'mIoU': value, 'aAcc': 2 * value, 'mAcc': value + 9}, value + 0.4,
                chosen=settings(joining), per_class={'IoU': classes}, config=f'configs/segmenter/{name}.py',
                world_size=4, images_per_process=2, accumulation=1, total_batch=8, host='node7', device='NVIDIA H200',
                cost=dict(
                    parameters=parameters, peak_memory_mib=9000 + number, seconds_per_iter=0.2,
                    memory_kind='allocated on one GPU', train_seconds=32000.0, gpu_hours=35.6,
                ),
            ).parents[1]  # fmt: skip
            rows = [
                {'loss': 3 / (1 + i / 40) + 0.1 * pattern[(i + number) % 5], 'iter': i, 'step': i}
                for i in range(1, 301)
            ]
            rows[100:100] = [{'mIoU': value - 9, 'step': 100}]
            write_log(work_dir / name / f'seed_{seed}', [*rows, {'mIoU': value, 'step': 300}])
    for name, joining, level in (('Mask R-CNN <b>&', 'default', 0.456), ('mask_rcnn $lape$', 'lape', 0.463)):
        chosen = settings(joining)
        chosen['model'] = {
            'type': 'MaskRCNN',
            'backbone': {**chosen['model']['backbone'], 'type': 'mmlape.ViTAdapter'},
        }
        for number, seed in enumerate(seeds[:2]):
            metrics = {
                f'coco/{kind}_mAP{size}': level * scale + number / 200
                for kind, scale in (('bbox', 1), ('segm', 0.9))
                for size in ('', '_50', '_s')
            }
            per_class = {'bbox_AP': {'cat': level, 'a|b': level / 2}, 'segm_AP': {'cat': level, 'a|b': None}}
            write_run(work_dir / name, seed, metrics, key='coco/bbox_mAP', chosen=chosen, per_class=per_class)
        write_planned(work_dir / name, seeds)
    return work_dir

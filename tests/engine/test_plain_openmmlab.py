"""OpenMMLab as it is: our configs under the plain runner, as under ours; plain configs under every command, alone."""

import copy
import json
import os

import golden_losses
import pytest
import tiny
import torch
import trouble
from mmengine.runner import Runner

from mmlape.lab.config.config_file import load_config
from mmlape.lab.config.schedule import shorten
from mmlape.lab.recipe import Recipe
from mmlape.lab.training.optim import build_model
from mmlape.lab.training.trainer import train

SEED = 7
# without random numbers, which our runs draw by the position of a sample and the iteration
KEPT = ('LoadImageFromFile', 'LoadAnnotations', 'PackInputs', 'PackSegInputs', 'PackDetInputs')
RATES = ('drop_path_rate', 'drop_rate', 'dropout_ratio', 'dropout', 'attn_drop', 'proj_drop')
NAMES = {
    'deit-mini-lape_1xb32-5e_mini-digits': {},
    'linear_deit-mini-dpn_1xb8-100i_mini-ade': {'IoUMetric': 'mmseg.IoUMetric'},
    'mask-rcnn_deit-mini-adapter-lape_1xb4-200i_mini-coco': {'CocoMetric': 'mmdet.CocoMetric'},
}
"""A recipe of each toolbox, and the toolbox's metric for ours."""


def without_random_numbers(node):
    """Change a part of a config in place."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key in RATES and isinstance(value, float):
                node[key] = 0.0
            elif key == 'sampler':
                node[key] = dict(type='PseudoSampler')
            without_random_numbers(value)
    elif isinstance(node, list | tuple):
        for value in node:
            without_random_numbers(value)


def innermost(dataset):
    return innermost(dataset['dataset']) if 'dataset' in dataset else dataset


def by_plain_runner(cfg, work_dir, metrics):
    """Train as `tools/train.py` of a toolbox does; return the losses and the metrics."""
    cfg = copy.deepcopy(cfg)
    cfg.work_dir, cfg.randomness = str(work_dir), dict(seed=SEED)
    for evaluator in [cfg.val_evaluator] if isinstance(cfg.val_evaluator, dict) else cfg.val_evaluator:
        evaluator.type = metrics.get(evaluator.type.rpartition('.')[2], evaluator.type)
    runner = Runner.from_cfg(cfg)
    runner.train()
    return [*tiny.losses(work_dir).values()], runner.message_hub


def _cases():
    """Yield the recipes; the fastest is enough for each change, the other two toolboxes are for releases."""
    for name in NAMES:
        yield pytest.param(name, marks=[] if name.startswith('deit-') else [pytest.mark.release])


@pytest.mark.parametrize('name', _cases())
def test_the_plain_runner_trains_and_evaluates_alike(name, tmp_path):
    golden_losses.make_data(tmp_path)
    cfg, share = golden_losses.recipe(name, tmp_path)
    shorten(Recipe.of(cfg), share)
    without_random_numbers(cfg.model)
    dataset = innermost(cfg.train_dataloader.dataset)
    dataset.pipeline = [step for step in dataset.pipeline if step['type'].rpartition('.')[2] in KEPT]
    torch.save(build_model(cfg).state_dict(), tmp_path / 'weights.pth')
    cfg.load_from = str(tmp_path / 'weights.pth')
    record = train(cfg, tmp_path / 'ours', seed=SEED, batch='allow-batch-mismatch')
    expected, hub = by_plain_runner(cfg, tmp_path / 'plain', NAMES[name])
    assert [*tiny.losses(tmp_path / 'ours').values()][:20] == pytest.approx(expected[:20], rel=1e-6) and len(
        expected
    ) >= 20
    assert len(set(expected)) >= 20
    metrics = {key.removeprefix('val/'): log.data[0][-1] for key, log in hub.log_scalars.items() if 'val/' in key}
    shared = {key: value for key, value in record.last.metrics.items() if key in metrics}
    assert shared and shared == pytest.approx({key: metrics[key] for key in shared}, abs=0.006)


HIDING = """
import sys

from import_graph import OF_FILES

HIDDEN = ('backbones', 'extension', 'integrations', 'models', 'projects')


class Refusing:
    @staticmethod
    def find_spec(name, path=None, target=None):
        first, _, rest = name.partition('.')
        of_papers = rest.startswith('checkpoint.') and rest not in OF_FILES
        if first == 'mmlape' and (of_papers or rest.partition('.')[0] in HIDDEN):
            raise ModuleNotFoundError(f'{name} is hidden', name=name)


sys.meta_path.insert(0, Refusing)
"""
PLAIN = {
    'faster-rcnn': ('epoch_2.pth', 4, 'coco/val2017', 'coco/bbox_mAP'),
    'fcn': ('iter_8.pth', 6, 'ade/images/validation', 'mIoU'),
    'resnet': ('epoch_2.pth', 6, 'digits/val/three', 'accuracy/top1'),
}
"""The plain configs, with the last checkpoint, an iteration behind the first, images, and the main metric."""


def test_building_a_model_leaves_its_config_as_a_study_plans_it():
    """MMPretrain's classifiers write defaults into what they are given."""
    for name in PLAIN:
        cfg = load_config(tiny.ROOT / 'tests' / 'plain' / f'{name}.py')
        before = copy.deepcopy(cfg.to_dict())
        build_model(cfg)
        assert cfg.to_dict() == before, name


def without_papers(folder, name, calls):
    """Return what calls of the command line on a plain config print where no paper can be imported."""
    golden_losses.make_data(folder)
    config = folder / f'{name}.py'
    config.write_text((tiny.ROOT / 'tests' / 'plain' / config.name).read_text() + trouble.CONFIG)
    (folder / 'hide').mkdir()
    (folder / 'hide' / 'sitecustomize.py').write_text(HIDING)
    (folder / 'calls.json').write_text(json.dumps(calls))
    path = os.pathsep.join(map(str, (folder / 'hide', tiny.ROOT, tiny.ROOT / 'tests')))
    script = tiny.ROOT / 'tests' / 'plain_commands.py'
    return tiny.run(script, 'calls.json', cwd=folder, **tiny.REAL, PYTHONPATH=path)


def test_a_trial_and_a_plan_of_a_plain_config_need_no_paper(tmp_path):
    words = ('check-data resnet.py', 'train resnet.py --smoke --work-dir smoke', 'multi-seed resnet.py --dry-run')
    printed = without_papers(tmp_path, 'resnet', [(line.split(), 0, {}) for line in words])
    assert 'the complete run:' in printed


@pytest.mark.release
@pytest.mark.parametrize('name', PLAIN)
def test_every_command_takes_a_config_of_openmmlab_without_our_papers(name, tmp_path):
    """Also a trial first, a run that is killed and resumed, and one that `multi-seed` starts."""
    last, killed, images, metric = PLAIN[name]
    config = f'{name}.py'
    whole, part = f'work/{name}/seed_1', 'part'
    train = ['train', config, '--work-dir', part, '--seed', '1', '--deterministic']
    by_train = ['train', config, '--work-dir', f'work/{name}/seed_2', '--seed', '2', '--deterministic']
    calls = [
        (['check-data', config], 0, {}),
        (['train', config, '--smoke', '--work-dir', 'smoke'], 0, {}),
        (by_train, 0, {}),
        (['multi-seed', config, '--seeds', '1', '2', '--work-dir', 'work', '--', '--deterministic'], 0, {}),
        (train, -9, {'TROUBLE': f'kill:{killed}:0'}),
        ([*train, '--resume'], 0, {}),
        (['status', 'work'], 0, {}),
        (['test', config, f'{whole}/{last}', '--page'], 0, {}),
        (['predict', whole, f'mini/{images}', '--out', 'predicted'], 0, {}),
        (['report', f'work/{name}'], 0, {}),
        (['multi-seed', config, '--slurm', '--slurm-args', 'partition=p', '--dry-run'], 0, {}),
    ]
    printed = without_papers(tmp_path, name, calls)
    assert 'partition=p' in printed and 'resuming from' in printed and 'the complete run:' in printed
    assert printed.count('finished before, skipped') == 1, 'a run of `train` is one of a study'
    assert tiny.difference(tmp_path / part / last, tmp_path / whole / last) == 0
    assert [*tiny.losses(tmp_path / part).values()][-2:] == [*tiny.losses(tmp_path / whole).values()][-2:]
    runs = [tiny.record(tmp_path / 'work' / name / f'seed_{seed}') for seed in (1, 2)]
    assert {record['state'] for record in runs} == {'finished'}
    assert {record['best']['key'] for record in runs} == {metric}
    [arm] = json.loads((tmp_path / 'work' / name / 'report' / 'report.json').read_text())['arms'].values()
    assert arm['last']['metrics'][metric]['n'] == 2 and (tmp_path / whole / 'metrics.html').is_file()
    assert list((tmp_path / 'predicted').iterdir())

"""What a recipe costs: seconds an iteration and memory at its own batch and size, and hours of its schedule.

The images are random, the recipe's optimiser and bf16 are real. Hours are those of the complete schedule on as many
such cards as the recipe is for, without validation. One line
holds what `mmlape train --smoke` says of a recipe against its row. `docs/records.py` makes the table of the catalogue.
"""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from benchmarks.checks import Check, Found, Options
from benchmarks.checks.run import mini_data
from benchmarks.comparison import Settings, free
from benchmarks.measure import allocated
from benchmarks.models import complete_model

RECIPES = {
    'Mask R-CNN': 'mask_rcnn/mask-rcnn_deit-{arch}-adapter_4xb2-3x_coco.py',
    'UperNet': 'upernet/upernet_deit-{arch}-adapter_4xb2-160k_ade20k.py',
    'Segmenter': 'segmenter/segmenter_deit-{arch}_4xb2-160k_ade20k.py',
}
FROZEN = {
    'Mask R-CNN, read-only adapter, DINOv3-S': 'mask_rcnn/mask-rcnn_dinov3-small-adapter_4xb2-3x_coco.py',
    'Plain-DETR, DINOv3-S': 'plain_detr/plain-detr_dinov3-small_8xb2-12e_coco.py',
}
"""Detectors over a ViT that is not trained."""
QUICK = {'Segmenter': 'segmenter/segmenter_deit-mini_1xb16-250i_mini-ade.py'}
COCO_SIDE = 1024
"""Side of a square with an area like that of COCO's images at 800 x 1333; others have the recipe's crop."""
COCO_IMAGES = 117266
"""Images of COCO's training set that have an annotation, by which epochs become iterations."""
WARM_UP, ROUNDS = 4, 20
SMOKE = 0.7, 1.5
"""The least and the most of the row's seconds that an iteration may take by `--smoke`, which loads images, too."""


def checks(options: Options) -> list[Check]:
    """Return a line for each recipe, size of model and arm, Ti and the default first, and the one of `--smoke`."""
    recipes = QUICK if options.quick else RECIPES
    found = [
        Check(f'{name}, DeiT-{arch}, {arm}', partial(_cost, options, path.format(arch=arch), arm))
        for arch in (('mini',) if options.quick else ('tiny', 'small'))
        for arm in (('lape',) if options.quick else ('default', 'lape'))
        for name, path in recipes.items()
    ]
    frozen = {} if options.quick else FROZEN
    found += [Check(name, partial(_cost, options, path, 'default')) for name, path in frozen.items()]
    path = recipes['Segmenter'].format(arch='tiny')
    return [*found, Check('what --smoke says of Segmenter', partial(_smoke, options, path))]


def _cost(options: Options, config: str, arm: str) -> Found:
    from mmlape.lab.engine.config import load_config

    cfg = load_config(f'mmlape::{config}')
    batch = cfg.train_dataloader.batch_size
    times, memory = _iterations(options, cfg, config, arm)
    seconds = sorted(times)[len(times) // 2]
    cards, count = _cards(config), _schedule(cfg, config)
    hours = seconds * count / 3600
    figure = f'{seconds:.3f} s an iteration of {batch} images'
    figure += f', {memory:.0f} MiB' if memory else ''
    figure += f'; {count} iterations on {cards} such cards: {hours:.1f} h'
    values = dict(
        config=config, scope=cfg.default_scope, arm=arm, batch=batch, seconds=seconds, times=times, memory_mib=memory,
        iterations=count, cards=cards, hours=hours,
    )  # fmt: skip
    return Found(True, figure, values)


def _iterations(options: Options, cfg, config: str, arm: str) -> tuple[list[float], float | None]:
    """Return the seconds of iterations of a recipe on random images, and the most memory in MiB on a card."""
    size = cfg.model.data_preprocessor.get('size')
    side = size[0] if size else COCO_SIDE
    step = _step(config, arm, Settings(options.device, 'bf16', side, batch=cfg.train_dataloader.batch_size))
    for _ in range(1 if options.quick else WARM_UP):
        step()
    allocated(options.device)
    times = []
    for _ in range(2 if options.quick else ROUNDS):
        started = time.perf_counter()
        step()
        if options.device == 'cuda':
            torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
    memory = allocated(options.device, peak=True) / 2**20 or None
    free(options.device)
    return times, memory


def _step(config: str, arm: str, settings: Settings) -> Callable[[], object]:
    from mmlape.lab.engine.optim import BFloat16OptimWrapper

    model, batch, wrapper = complete_model(config, arm, settings)
    model.train()
    optimiser = BFloat16OptimWrapper(optimizer=wrapper.optimizer, clip_grad=wrapper.clip_grad_kwargs)
    return lambda: model.train_step(batch, optimiser)


def _smoke(options: Options, config: str) -> Found:
    from mmlape.lab.engine.config import load_config
    from mmlape.lab.engine.smoke import smoke

    root = mini_data(options) / 'ade'
    cfg = load_config(f'mmlape::{config}', [f'data_root={root}/', 'model.backbone.init_cfg=None'])
    times, _ = _iterations(options, cfg, config, 'default')
    row = sorted(times)[len(times) // 2]
    facts = smoke(cfg, Path(options.scratch) / 'run', amp='bf16', seed=1, batch='allow-batch-mismatch')
    share = facts['seconds_per_iter'] / row
    figure = f'{facts["seconds_per_iter"]:.3f} s an iteration, {share:.2f} of the row; {facts["hours"]:.1f} h alone'
    return Found(options.quick or SMOKE[0] <= share <= SMOKE[1], figure, dict(facts, row=row, share=share))


def _cards(config: str) -> int:
    """Return the processes that the name of a recipe states, as 4 in '_4xb2-'."""
    return int(config.rpartition('xb')[0].rpartition('_')[2])


def _schedule(cfg, config: str) -> int:
    """Return the iterations of a schedule; those of epochs by the images of COCO."""
    if cfg.train_cfg.get('max_iters'):
        return cfg.train_cfg.max_iters
    return cfg.train_cfg.max_epochs * -(-COCO_IMAGES // (cfg.train_dataloader.batch_size * _cards(config)))

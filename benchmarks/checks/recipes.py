"""What a recipe costs: seconds an iteration and memory at its own batch and size, and hours of its schedule.

The images are random, the recipe's optimiser and bf16 are real. Hours are those of the complete schedule on as many
such cards as the recipe is for, without validation; the data pipeline is measured by the section `loading`.
"""

import time
from collections.abc import Callable
from functools import partial

import torch

from benchmarks.checks import Check, Found, Options
from benchmarks.checks.cost import allocated
from benchmarks.comparison import Settings, free
from benchmarks.models import complete_model

RECIPES = {
    'Mask R-CNN': 'mask_rcnn/mask-rcnn_deit-{arch}-adapter_4xb2-3x_coco.py',
    'UperNet': 'upernet/upernet_deit-{arch}-adapter_4xb2-160k_ade20k.py',
    'Segmenter': 'segmenter/segmenter_deit-{arch}_4xb2-160k_ade20k.py',
}
SIZES = {'Mask R-CNN': 1024, 'UperNet': 512, 'Segmenter': 512}
"""Sides of the square images: the recipe's crop, and an area like that of COCO's images at 800 x 1333."""
COCO_IMAGES = 117266
"""Images of COCO's training set that have an annotation, by which epochs become iterations."""
WARM_UP, ROUNDS = 4, 20


def checks(options: Options) -> list[Check]:
    """Return a line for each recipe, size of model and arm, Ti and the default first."""
    recipes = {'Segmenter': RECIPES['Segmenter']} if options.quick else RECIPES
    return [
        Check(f'{name}, DeiT-{arch}, {arm}', partial(_cost, options, name, path.format(arch=arch), arm))
        for arch in (('tiny',) if options.quick else ('tiny', 'small'))
        for arm in (('lape',) if options.quick else ('default', 'lape'))
        for name, path in recipes.items()
    ]


def _cost(options: Options, name: str, config: str, arm: str) -> Found:
    from mmlape.lab.engine.config import load_config

    cfg = load_config(f'mmlape::{config}')
    batch, size = cfg.train_dataloader.batch_size, 64 if options.quick else SIZES[name]
    settings = Settings(options.device, ('bf16',), (size,), batch=batch)
    step = _step(options, config, arm, settings, size)
    for _ in range(1 if options.quick else WARM_UP):
        step()
    start = allocated(options.device)
    times = []
    for _ in range(2 if options.quick else ROUNDS):
        started = time.perf_counter()
        step()
        if options.device == 'cuda':
            torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
    seconds = sorted(times)[len(times) // 2]
    memory = allocated(options.device, peak=True) / 2**20 or None
    free(options.device)
    cards, count = _cards(config), _iterations(cfg)
    hours = seconds * count / 3600
    figure = f'{seconds:.3f} s an iteration of {batch} images'
    figure += f', {memory:.0f} MiB' if memory else ''
    figure += f'; {count} iterations on {cards} such cards: {hours:.1f} h'
    values = dict(seconds=times, memory_mib=memory, start=start, iterations=count, cards=cards, hours=hours)
    return Found(True, figure, values)


def _step(options: Options, config: str, arm: str, settings: Settings, size: int) -> Callable[[], object]:
    from mmlape.lab.engine.optim import BFloat16OptimWrapper

    model, batch, wrapper = complete_model(config, arm, settings, size)
    model.train()
    optimiser = BFloat16OptimWrapper(optimizer=wrapper.optimizer, clip_grad=wrapper.clip_grad_kwargs)
    return lambda: model.train_step(batch, optimiser)


def _cards(config: str) -> int:
    """Return the processes that the name of a recipe states, as 4 in '_4xb2-'."""
    return int(config.rpartition('xb')[0].rpartition('_')[2])


def _iterations(cfg) -> int:
    """Return the iterations of a schedule; those of epochs by the images of COCO."""
    if cfg.train_cfg.get('max_iters'):
        return cfg.train_cfg.max_iters
    return cfg.train_cfg.max_epochs * -(-COCO_IMAGES // (cfg.train_dataloader.batch_size * 4))

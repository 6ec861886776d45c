"""A frozen ViT that runs once: training from stored features, and two heads over one ViT beside two models."""

import copy
import logging
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace

from benchmarks.comparison import STEP, Comparison, Settings

ARCHS = {
    'mini': 'test_vit',
    'deit-tiny': 'vit_tiny_patch16_224',
    'deit-small': 'vit_small_patch14_dinov2',
    'deit-base': 'vit_base_patch14_dinov2',
}
"""ViTs of timm that are as large as those that `--arch` names."""
IMAGES = 20
"""Of training, each in two views."""
_SCRATCH = tempfile.TemporaryDirectory(prefix='benchmark-frozen-')


def comparisons(settings: Settings) -> list[Comparison]:
    """Return a step of training, data loading included, with and without the store; and predictions of two heads."""
    title = f'linear head of `mmlape new` over {ARCHS[settings.arch]}, {settings.images} x {settings.size}'
    steps: dict[str, Callable] = {'computed': lambda: training(settings, 0), 'stored': lambda: training(settings, 2)}
    heads: dict[str, Callable] = {
        'two models': lambda: predicting(settings, shared=False),
        'one ViT, two heads': lambda: predicting(settings, shared=True),
    }
    return [
        Comparison(f'{title}: stored features over computed ones, {STEP}', steps),
        Comparison(f'{title}: one ViT with two heads over two models, forward', heads),
    ]


@cache
def config(arch: str, size: int) -> Path:
    """Write scenes with label maps, and the config that `mmlape new` makes for them."""
    from mmlape.lab.datasets.mini.make import MiniOptions, make_mini_data
    from mmlape.new.command import write_config

    folder = Path(_SCRATCH.name, f'{arch}-{size}')
    options = MiniOptions(train=IMAGES, val=2, digits=50, size=(size, size), digit_size=(size // 4, size // 3))
    make_mini_data(folder / 'data', options)
    written = folder / 'new.py'
    write_config(folder / 'data/ade', written, 'a benchmark', model=ARCHS[arch], weights='none', head='linear')
    return written


def loaded(settings: Settings, views: int = 0):
    """Return that config with random weights, data that this process reads, and so many stored views."""
    from mmlape.lab.config.config_file import load_config

    cfg = load_config(config(settings.arch, settings.size))
    cfg.model.backbone.init_cfg = None
    cfg.train_dataloader.update(batch_size=settings.images, num_workers=0)
    if views:
        cfg.cache_features = dict(views=views, cache_dir=f'{_SCRATCH.name}/store')
    return cfg


def training(settings: Settings, views: int) -> Callable[[], object]:
    """Return a step on the next batch of the data loader; of stored features, all are stored before."""
    from mmengine.optim import build_optim_wrapper

    from mmlape.lab.recipe import Recipe
    from mmlape.lab.runs import identity
    from mmlape.lab.runs.schema import Identity, RunRecord
    from mmlape.lab.training.frozen.hook import CachedFeaturesHook
    from mmlape.lab.training.optim import build_model, quiet_logger
    from mmlape.lab.training.runner import Runner
    from mmlape.lab.training.seeding import seeded_dataloader

    cfg = loaded(settings, views)
    model = build_model(cfg).to(settings.device)
    with quiet_logger():
        model.init_weights()
        wrapper = build_optim_wrapper(model, cfg.optim_wrapper)
        loader = Runner.build_dataloader(seeded_dataloader(cfg.train_dataloader, views=views), seed=0)
        record = RunRecord(identity=Identity(settings=identity.settings(Recipe.of(cfg))))
        runner = SimpleNamespace(
            cfg=cfg, recorder=SimpleNamespace(record=record), model=model, bare_model=model, optim_wrapper=wrapper,
            train_dataloader=loader, val_loop=None, logger=logging.getLogger(__name__), hook=CachedFeaturesHook(),
        )  # fmt: skip
        if views:
            runner.hook.before_train(runner)  # lasts as long as the hook
    model.train()
    batches = iter(loader)
    return lambda: runner.model.train_step(next(batches), runner.optim_wrapper)


def predicting(settings: Settings, shared: bool) -> Callable[[], object]:
    """Return a prediction of two models over the same frozen ViT."""
    from mmlape.lab.inference.prediction import init_model, predict_batch
    from mmlape.lab.training.frozen.shared import SharedPart

    first = init_model(loaded(settings), None, settings.device)
    models = [first, copy.deepcopy(first)]
    images = settings.inputs().cpu().clamp(0, 1).mul(255).byte().permute(0, 2, 3, 1).numpy()
    inputs = [first.preparation.of_array(image) for image in images]
    part = SharedPart(dict(zip('ab', models)))

    def work() -> None:
        for model in models:
            predict_batch(model, inputs, logits=False)

    def once() -> None:
        with part.running_once():
            work()

    return once if shared else work

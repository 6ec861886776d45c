"""Fill the store before training, and let data loaders and model read it.

``cache_features = dict(views=16)`` in a config, or `train --cache-features 16`. Each image of training has so many
views, whose augmentations follow from its place and the view's number, alike in every run; the run's seed decides
order and views. So several seeds and arms read one store. With ``per_seed=True`` each seed has views and a store of
its own, for an interval over seeds that has the chance of the augmentations in it.
"""

import logging
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from mmengine.dist import barrier, get_dist_info
from mmengine.hooks import Hook
from mmengine.runner import ValLoop
from mmengine.runner.amp import autocast
from torch import nn
from torch.utils.data import DataLoader

from mmlape.checkpoint.trained_alone import digest_of_tensors
from mmlape.errors import ConfigError
from mmlape.lab.distributed import on_main_process
from mmlape.lab.registry import HOOKS
from mmlape.lab.runs.code import used_by
from mmlape.lab.runs.record import lock_holder, take_lock
from mmlape.lab.training.frozen import default_folder
from mmlape.lab.training.frozen.part import FrozenPart, View, config_of
from mmlape.lab.training.frozen.store import FeatureStore, image_names, parts_of
from mmlape.lab.training.seeding import SeededDataset, SeededIndex, isolated

DTYPES = {'float16': torch.float16, 'bfloat16': torch.bfloat16, 'float32': torch.float32}
OPTIONS = ('views', 'dtype', 'per_seed', 'cache_dir')
WAIT = 2.0  # seconds between two looks at a lock
TOLD = 20.0  # seconds between two lines of progress


def views_of(cfg: dict) -> int:
    """Return how many views of each image are stored; 0 if none are.

    Raises:
        ConfigError: ``cache_features`` has another key, or a value that cannot be.
    """
    given = cfg.get('cache_features')
    if not given:
        return 0
    unknown = [key for key in given if key not in OPTIONS]
    if unknown:
        raise ConfigError(f'cache_features has no {unknown[0]}: {", ".join(OPTIONS)}')
    views = given.get('views')
    if not isinstance(views, int) or isinstance(views, bool) or views < 1:
        raise ConfigError(f'cache_features.views={views!r}: how many views of each image are stored, at least 1')
    if given.get('dtype', 'float16') not in DTYPES:
        raise ConfigError(f'cache_features.dtype={given["dtype"]!r}: choose one of {", ".join(DTYPES)}')
    return views


def _as_it_is(sample: Any) -> Any:
    return sample


@HOOKS.register_module()
class CachedFeaturesHook(Hook):
    """Compute what is missing in the store before training starts, and train from it."""

    changes_results = False  # `cache_features` of the config does
    priority = 'VERY_HIGH'

    def __init__(self) -> None:
        self.stack = ExitStack()

    def before_train(self, runner) -> None:
        """Fill the store.

        Raises:
            ConfigError: The model has no part that runs once, or the images of a batch differ in size.
            TrainingError: The store has no room, or cannot be trusted.
        """
        given = runner.cfg.cache_features
        views, dtype = given['views'], DTYPES[given.get('dtype', 'float16')]
        seed = [runner.seed] if given.get('per_seed') else []
        folder = Path(given.get('cache_dir') or default_folder()).expanduser()
        loader, model = runner.train_dataloader, runner.bare_model
        model.train()
        with isolated(0), runner.optim_wrapper.optim_context(runner.model):
            samples = [
                loader.dataset[SeededIndex.of_view(index, 0, *seed)] for index in range(min(2, len(loader.dataset)))
            ]
            part = FrozenPart(model, loader.collate_fn(samples))
            first = part.check(samples, loader.collate_fn)
            content = runner.recorder.record.identity.settings
            key = dict(
                part=part.name,
                with_image=part.with_image,
                preprocessor=[part_of.get('data_preprocessor') for part_of in (content, content['model'])],
                tensors=digest_of_tensors(part.tensors()),
                config=config_of(content['model'], part.name),
            )
            data = content['train_dataloader'].get('dataset')
            of_training = dict(key, data=data, precision=_precision(runner), seed=seed)
            store = _store(folder, of_training, model, part, loader, views, dtype)
            self._fill(runner, part, loader, store, first, seed)
        loader.dataset.read_from(store.sample)
        if runner.val_loop is not None:
            self._validation(runner, part, key, folder, dtype)
        self.stack.enter_context(part.replaying())

    def _validation(self, runner, part: FrozenPart, key: dict, folder: Path, dtype: torch.dtype) -> None:
        """Fill the store of validation, where the part goes once over complete images."""
        loop, loader = runner.val_loop, runner.val_dataloader
        reason = f'{part.name} runs more than once for an image, or the prediction reads the image'
        if type(loop) is not ValLoop or not isinstance(loader.dataset, SeededDataset):
            reason = f'{type(loop).__name__} does not give an image at a time to the model'
        else:
            with isolated(0), autocast(enabled=loop.fp16):
                (view,) = part.views([loader.dataset[0]], loader.collate_fn, training=False)
                if part.runs_once(loader.collate_fn([view.sample()])):
                    data = runner.recorder.record.identity.settings['val_dataloader'].get('dataset')
                    content = dict(key, data=data, precision=loop.fp16, training=False)
                    store = _store(folder, content, runner.bare_model, part, loader, 1, dtype)
                    self._fill(runner, part, loader, store, view)
                    each_size = (store.sample(index, 0) for index in store.of_each_size())
                    if all(part.runs_once(loader.collate_fn([sample])) for sample in each_size):
                        loader.dataset.read_from(store.sample)
                        return
        runner.logger.info(f'validation computes its features: {reason}')

    def _fill(
        self,
        runner,
        part: FrozenPart,
        loader: DataLoader,
        store: FeatureStore,
        example: View,
        seed: list[int] | None = None,
    ) -> None:
        """Compute the features of the images that are missing, each process a part of them.

        Args:
            runner: It trains.
            part: What computes them.
            loader: Of the images.
            store: Gets them.
            example: One view, for the size.
            seed: What the views follow from beside place and number, in training; None in validation.
        """
        training = seed is not None
        rank, world_size = get_dist_info()
        with _only_writer(store.folder / 'lock', runner.logger):
            runner.logger.info(f'checking what {store.folder} has of {len(store.names)} images')
            checked = _told(range(len(store.names)), len(store.names), 'checked', runner.logger)
            missing = on_main_process(lambda: list(store.missing(checked)))
            size, free = on_main_process(lambda: store.require_room(example, len(missing)))
            kind = 'training' if training else 'validation'
            runner.logger.info(
                f'features of {part.name}, {kind}: {len(missing)} of {len(store.names)} images x {store.views} views, '
                f'about {size / 1e6:,.0f} MB; {free / 1e6:,.0f} MB are free in {store.folder}'
            )
            mine = missing[rank::world_size]
            reading = _read(loader, mine, store.views, seed or ())
            for index, samples in _told(reading, len(mine), 'features', runner.logger):
                views = part.views(samples, loader.collate_fn, training)
                if training and views[0].size != example.size:
                    raise ConfigError(
                        f'cache_features: images of training differ in size ({example.size[1:]} and '
                        f'{views[0].size[1:]}), so that features depend on the batch: let the pipeline or the '
                        'preprocessor give them one size'
                    )
                store.write(index, views)
            barrier()

    def after_train(self, runner) -> None:
        """Let the part compute again."""
        self.stack.close()
        for loader in (runner.train_dataloader, runner.val_dataloader):
            if isinstance(getattr(loader, 'dataset', None), SeededDataset):
                loader.dataset.read_from(None)


def _precision(runner) -> str:
    return f'{type(runner.optim_wrapper).__name__} {getattr(runner.optim_wrapper, "cast_dtype", None)}'


def _store(
    folder: Path, key: dict, model: nn.Module, part: FrozenPart, loader: DataLoader, views: int, dtype: torch.dtype
) -> FeatureStore:
    """Return the store of a data loader's images, by what decides their features."""
    computing = [model, *part.module.modules(), *model.data_preprocessor.modules(), *parts_of(loader.dataset)]
    code = used_by([*computing, *parts_of(loader.collate_fn), part, image_names])
    return FeatureStore(folder, dict(key, code=code), image_names(loader.dataset), views, dtype)


def _read(
    loader: DataLoader, indices: Sequence[int], views: int, seed: Sequence[int]
) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """Yield indices and the samples of their views, read by as many processes as the loader has."""
    order = [SeededIndex.of_view(index, view, *seed) for index in indices for view in range(views)]
    options = dict(num_workers=min(loader.num_workers, len(order)), worker_init_fn=loader.worker_init_fn)
    reader = iter(DataLoader(loader.dataset, batch_size=None, sampler=order, collate_fn=_as_it_is, **options))
    for index in indices:
        yield index, list(islice(reader, views))


def _told(images: Iterable[Any], count: int, what: str, logger: logging.Logger) -> Iterator[Any]:
    """Yield what there is of each image, and tell now and then how many are done."""
    started = told = time.monotonic()
    for done, image in enumerate(images, 1):
        yield image
        if time.monotonic() - told > TOLD:
            told = time.monotonic()
            left = (told - started) / done * (count - done)
            logger.info(f'{what}: {done} of {count} images, eta: {int(left // 60)} min {int(left % 60)} s')


@contextmanager
def _only_writer(path: Path, logger: logging.Logger) -> Iterator[None]:
    """Run a block in all processes of this run, while no other run does."""

    def taken() -> int:
        if (lock := take_lock(path)) is None:
            holder = lock_holder(path) or {}
            logger.info(f'features are computed by process {holder.get("pid")} on {holder.get("host")}: waiting')
        while lock is None:
            time.sleep(WAIT)
            lock = take_lock(path)
        return lock

    lock = on_main_process(taken)
    try:
        yield
    finally:
        if get_dist_info()[0] == 0:
            os.close(lock)

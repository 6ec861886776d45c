"""Fill the store before training, and let data loaders and model read it.

``cache_features = dict(views=16)`` in a config, or `train --cache-features 16`. Each image of training has so many
views, whose augmentations follow from its place and the view's number, alike in every run; the run's seed decides
order and views. So several seeds and arms read one store. With ``per_seed=True`` each seed has views and a store of
its own, for an interval over seeds that has the chance of the augmentations in it.
"""

import logging
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from mmengine.dist import barrier, get_dist_info
from mmengine.hooks import Hook
from mmengine.runner import ValLoop
from mmengine.runner.amp import autocast
from torch.utils.data import DataLoader

from mmlape.errors import ConfigError
from mmlape.lab.engine.distributed.processes import on_main_process
from mmlape.lab.engine.frozen import default_folder
from mmlape.lab.engine.frozen.part import FrozenPart, View
from mmlape.lab.engine.frozen.store import FeatureStore, image_names, part_key
from mmlape.lab.engine.seeding import SeededDataset, SeededIndex, isolated
from mmlape.lab.registry import HOOKS
from mmlape.lab.runs.identity import settings
from mmlape.lab.runs.locks import lock_holder, take_lock

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


class StoredSamples:
    """The samples of a dataset from a store."""

    def __init__(self, store: FeatureStore) -> None:
        self.store = store

    def __call__(self, index: int, view: int) -> dict[str, Any]:
        """Return the sample of a view."""
        return self.store.read(index, view).sample()


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
            samples = [loader.dataset[SeededIndex.of_view(index, 0)] for index in range(min(2, len(loader.dataset)))]
            part = FrozenPart(model, loader.collate_fn(samples))
            blind = [view.sample() for view in _views(part, loader, samples, training=True)]
            part.check(loader.collate_fn(samples), loader.collate_fn(blind))
            content = settings(runner.cfg)
            key = dict(
                part=part.name,
                preprocessor=[part_of.get('data_preprocessor') for part_of in (content, content['model'])],
                **part_key(part.module),
                config=_config_of(content['model'], part.name),
            )
            data = content['train_dataloader'].get('dataset')
            of_training = dict(key, data=data, precision=_precision(runner), seed=seed)
            store = FeatureStore(folder, of_training, image_names(loader.dataset), views, dtype)
            self._fill(runner, part, loader, store, seed, training=True)
        loader.dataset.read_from(StoredSamples(store))
        if runner.val_loop is not None:
            self._validation(runner, part, key, folder, dtype)
        self.stack.enter_context(part.replaying())

    def _validation(self, runner, part: FrozenPart, key: dict, folder: Path, dtype: torch.dtype) -> None:
        """Fill the store of validation, where it goes once over complete images."""
        loop, loader = runner.val_loop, runner.val_dataloader
        reason = None
        if type(loop) is not ValLoop or not isinstance(loader.dataset, SeededDataset):
            reason = f'{type(loop).__name__} does not give an image at a time to the model'
        else:
            with isolated(0), autocast(enabled=loop.fp16):
                sample = loader.dataset[0]
                (view,) = _views(part, loader, [sample], training=False)
                if not part.runs_once(loader.collate_fn([view.sample()])):
                    reason = f'{part.name} runs more than once for an image'
                else:
                    data = settings(runner.cfg)['val_dataloader'].get('dataset')
                    content = dict(key, data=data, precision=loop.fp16, training=False)
                    store = FeatureStore(folder, content, image_names(loader.dataset), 1, dtype)
                    self._fill(runner, part, loader, store, [], training=False)
                    loader.dataset.read_from(StoredSamples(store))
        if reason:
            runner.logger.info(f'validation computes its features: {reason}')

    def _fill(
        self, runner, part: FrozenPart, loader: DataLoader, store: FeatureStore, seed: list[int], training: bool
    ) -> None:
        """Compute the features of the images that are missing, each process a part of them."""
        rank, world_size = get_dist_info()
        lock = on_main_process(lambda: _wait_for(store.folder / 'lock', runner.logger))
        missing = on_main_process(lambda: list(store.missing()))
        mine = missing[rank::world_size]
        started = told = time.monotonic()
        size = None
        for done, (index, samples) in enumerate(_read(loader, mine, store.views, seed), 1):
            views = _views(part, loader, samples, training)
            size = size or views[0].size
            if training and views[0].size != size:
                raise ConfigError(
                    f'cache_features: images of training differ in size ({size[1:]} and {views[0].size[1:]}), so that '
                    'features depend on the batch: let the pipeline or the preprocessor give them one size'
                )
            written = store.write(index, views)
            if done == 1:
                store.require_room(written, len(missing))
                total = written * len(missing) / 1e6
                kind = 'training' if training else 'validation'
                runner.logger.info(
                    f'features of {part.name}, {kind}: {len(missing)} of {len(store.names)} images x {store.views} '
                    f'views, about {total:.0f} MB in {store.folder}'
                )
            if time.monotonic() - told > TOLD:
                told = time.monotonic()
                left = (told - started) / done * (len(mine) - done)
                runner.logger.info(
                    f'features: {done} of {len(mine)} images, eta: {int(left // 60)} min {int(left % 60)} s'
                )
        if not missing:
            runner.logger.info(f'features of {len(store.names)} images x {store.views} views: {store.folder}')
        barrier()
        if rank == 0:
            os.close(lock)

    def after_train(self, runner) -> None:
        """Let the part compute again."""
        self.stack.close()
        for loader in (runner.train_dataloader, runner.val_dataloader):
            if isinstance(getattr(loader, 'dataset', None), SeededDataset):
                loader.dataset.read_from(None)


def _config_of(model: dict, name: str) -> Any:
    """Return the config of a part of a model, or of the smallest part around it that has one."""
    for key in name.split('.'):
        if not isinstance(model.get(key), dict):
            break
        model = model[key]
    return model


def _precision(runner) -> str:
    return f'{type(runner.optim_wrapper).__name__} {getattr(runner.optim_wrapper, "cast_dtype", None)}'


def _views(part: FrozenPart, loader: DataLoader, samples: list[dict[str, Any]], training: bool) -> list[View]:
    """Return the views of samples as the data loader collates them."""
    return part.views(loader.collate_fn(samples), [loader.collate_fn([sample]) for sample in samples], training)


def _read(
    loader: DataLoader, indices: Sequence[int], views: int, seed: Sequence[int]
) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """Yield indices and the samples of their views, read by as many processes as the loader has."""
    order = [SeededIndex.of_view(index, view, *seed) for index in indices for view in range(views)]
    options = dict(num_workers=min(loader.num_workers, len(order)), worker_init_fn=loader.worker_init_fn)
    reader = iter(DataLoader(loader.dataset, batch_size=None, sampler=order, collate_fn=_as_it_is, **options))
    for index in indices:
        yield index, list(islice(reader, views))


def _wait_for(path: Path, logger: logging.Logger) -> int:
    """Return the descriptor of a lock, as soon as no other process has it."""
    while (lock := take_lock(path)) is None:
        holder = lock_holder(path) or {}
        logger.info(f'features are computed by process {holder.get("pid")} on {holder.get("host")}: waiting')
        time.sleep(WAIT)
    return lock

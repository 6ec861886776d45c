"""Randomness as a function of seed and position, so that a resumed or distributed run repeats an uninterrupted one.

The position of a sample in training is its index in the stream that all processes share. Its
augmentations are seeded by ``(seed, epoch, position)``, the model's own randomness (drop path,
sampled proposals) by ``(seed, iteration, rank)``. Neither depends on the number of workers or on
how often a run was killed, the samples not even on the number of processes.
"""

import contextlib
import itertools
import os
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from mmengine.dataset import InfiniteSampler
from mmengine.dist import get_dist_info
from mmengine.registry import DATA_SAMPLERS, DATASETS
from torch.utils.data import BatchSampler, DataLoader, Dataset, Sampler

from mmlape.errors import TrainingError


def derive_seed(*key: int) -> int:
    """Return a well mixed 32-bit seed for a key of non-negative integers."""
    return int(np.random.SeedSequence(key).generate_state(1)[0])


def seed_everything(seed: int) -> None:
    """Seed the generators of Python, NumPy and torch (those of the GPUs too)."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def random_states() -> tuple:
    """Return the states of the CPU generators of Python, NumPy and torch."""
    return random.getstate(), np.random.get_state(), torch.get_rng_state()


def set_random_states(states: tuple) -> None:
    """Set what :func:`random_states` returned."""
    random.setstate(states[0])
    np.random.set_state(states[1])
    torch.set_rng_state(states[2])


def _seed_cpu(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)
    torch.default_generator.manual_seed(seed)


@contextlib.contextmanager
def isolated(seed: int) -> Iterator[None]:
    """Run a block on freshly seeded CPU generators, then restore their states."""
    states = random_states()
    _seed_cpu(seed)
    try:
        yield
    finally:
        set_random_states(states)


class SeededIndex(int):
    """A sample's index that carries the seed of its augmentations, and the number of its view where there are K."""

    seed: int
    view: int

    def __new__(cls, index: int, seed: int, view: int = 0) -> 'SeededIndex':
        """Return the index with its seed and view."""
        seeded = super().__new__(cls, index)
        seeded.seed, seeded.view = seed, view
        return seeded

    @classmethod
    def of_view(cls, index: int, view: int, *seed: int) -> 'SeededIndex':
        """Return the index of a view, whose augmentations are the same in every run, or in those of a seed."""
        return cls(index, derive_seed(index, view, *seed), view)

    def __reduce__(self):
        return SeededIndex, (int(self), self.seed, self.view)


class SeededDataset(Dataset):
    """A dataset whose sample at a :class:`SeededIndex` follows from index and seed.

    All else is the inner dataset. This includes attributes that are set: a hook that replaces
    ``pipeline`` replaces that of every dataset which has one, also inside wrappers that repeat or join datasets.
    """

    def __init__(self, dataset: dict | Dataset) -> None:
        self.__dict__['dataset'] = DATASETS.build(dataset) if isinstance(dataset, dict) else dataset
        self.__dict__['stored'] = None

    def read_from(self, stored: Callable[[int, int], Any] | None) -> None:
        """Return what ``stored`` has for index and view instead of the dataset's samples."""
        self.__dict__['stored'] = stored

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int):
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list:
        """Return the samples of a batch, as DataLoader asks for them.

        The generators' states are kept once a batch: to read and restore them costs ten times as
        much as to seed.
        """
        states = random_states()
        try:
            return [self._sample(index) for index in indices]
        finally:
            if any(isinstance(index, SeededIndex) for index in indices):
                set_random_states(states)

    def _sample(self, index: int):
        if self.stored is not None:
            return self.stored(int(index), getattr(index, 'view', 0))
        if isinstance(index, SeededIndex):
            _seed_cpu(index.seed)
        return self.dataset[int(index)]

    def __getattr__(self, name: str):
        if name == 'dataset' or name.startswith('__'):
            raise AttributeError(name)
        return getattr(self.dataset, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if self.stored is not None:
            raise TrainingError(f'{name} of a dataset is changed in training, and its samples are stored')
        for owner in _owners(self.dataset, name):
            setattr(owner, name, value)


def _owners(dataset: Any, name: str) -> list[Any]:
    """Return the datasets that have an attribute: the first ones on the way into wrappers; else the outermost one."""
    inner = getattr(dataset, 'datasets', None) or [part for part in (getattr(dataset, 'dataset', None),) if part]
    if hasattr(dataset, name) or not inner:
        return [dataset]
    return [owner for part in inner for owner in _owners(part, name)]


class SeededSampler(Sampler):
    """Yield the inner sampler's indices as :class:`SeededIndex`.

    Args:
        sampler: A sampler of MMEngine, which gives a rank every ``world_size``-th index of one
            shared stream: index ``i`` of rank ``r`` has position ``i * world_size + r`` in the
            stream; or the config of one.
        seed: The run's seed.
        dataset: Which the sampler of a config is built for.
        views: If it is not 0, each image has so many views, alike in all runs, and the seed only chooses among them.
        per_seed: Whether the views are of this seed alone.
    """

    def __init__(
        self, sampler: dict | Sampler, seed: int, dataset: Any = None, views: int = 0, per_seed: bool = False
    ) -> None:
        if isinstance(sampler, dict):
            sampler = DATA_SAMPLERS.build(sampler, default_args=dict(dataset=dataset, seed=seed))
        self.sampler, self.seed, self.views = sampler, seed, views
        self.endless = isinstance(sampler, InfiniteSampler)  # which has no epochs and can start anywhere
        self.of = (seed,) if per_seed else ()
        self.epoch, self.start = 0, 0
        self.rank, self.world_size = get_dist_info()

    def __iter__(self) -> Iterator[SeededIndex]:
        for number, index in zip(itertools.count(self.start), self._indices()):
            position = number * self.world_size + self.rank
            seed = derive_seed(self.seed, self.epoch, position)
            yield SeededIndex.of_view(index, seed % self.views, *self.of) if self.views else SeededIndex(index, seed)

    def _indices(self) -> Iterator[int]:
        """Return the inner sampler's indices from the first one that is yielded.

        Every pass of an endless one is a stream of its own. MMEngine's sampler has a single one, which is at its end
        for all as soon as a data loader drops a pass; its older versions make such a pass themselves, and cannot skip.
        """
        if self.endless:
            return itertools.islice(self.sampler._indices_of_rank(), self.start, None)
        return iter(self.sampler)

    def __len__(self) -> int:
        return len(self.sampler)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch, also of an inner sampler that has one; nothing of an endless one, which has no epochs."""
        if self.endless:
            return
        self.epoch = epoch
        if hasattr(self.sampler, 'set_epoch'):
            self.sampler.set_epoch(epoch)

    def __getattr__(self, name: str):
        if name == 'sampler' or name.startswith('__'):
            raise AttributeError(name)
        return getattr(self.sampler, name)


class SkippingBatchSampler(Sampler):
    """Batches of indices, the first of which can be skipped without loading them.

    ``batches`` is the configuration of a batch sampler, by aspect ratio for example; None stands
    for batches in order.
    """

    def __init__(
        self, sampler: Sampler, batch_size: int, drop_last: bool = False, batches: dict | None = None
    ) -> None:
        self.sampler, self.batch_size = sampler, batch_size
        self.in_order, self.skipped = batches is None, 0
        if batches is None:
            self.batches = BatchSampler(sampler, batch_size, drop_last)
        else:
            self.batches = DATA_SAMPLERS.build(batches, default_args=dict(sampler=sampler, batch_size=batch_size))

    def __iter__(self) -> Iterator[list[int]]:
        # a generator, because a loader with workers asks for two iterators and reads the second
        skipped, self.skipped = self.skipped, 0
        yield from itertools.islice(iter(self.batches), skipped, None)

    def __len__(self) -> int:
        return len(self.batches)

    def skip(self, count: int) -> int:
        """Start the next pass after ``count`` batches of the run.

        Return the number of its epoch.
        """
        endless = self.sampler.endless
        if endless and self.in_order:
            self.sampler.start = count * self.batch_size
            return 0
        epoch, self.skipped = (0, count) if endless else divmod(count, len(self))
        self.sampler.set_epoch(epoch)
        return epoch


class Batches:
    """The endless stream of batches of a run that counts iterations.

    One epoch follows another at once.
    """

    def __init__(self, dataloader: DataLoader) -> None:
        self.dataloader = dataloader
        self.epoch = 0
        self._iterator: Iterator | None = None

    def __iter__(self) -> 'Batches':
        return self

    def __next__(self):
        if self._iterator is None:
            self._iterator = iter(self.dataloader)
        try:
            return next(self._iterator)
        except StopIteration:
            self.epoch += 1
            self.dataloader.batch_sampler.sampler.set_epoch(self.epoch)
            self._iterator = iter(self.dataloader)
            return next(self._iterator)

    def skip_iter(self, count: int) -> None:
        """Skip ``count`` batches; MMEngine's loop calls it when it resumes."""
        self.epoch = self.dataloader.batch_sampler.skip(count)


def seeded_dataloader(dataloader: dict, **views) -> dict:
    """Return the configuration of a dataloader for training, with dataset and samplers wrapped.

    The given one is unchanged; ``views`` are arguments of `SeededSampler`.
    """
    dataset, sampler = dataloader.get('dataset'), dataloader.get('sampler')
    are_given = isinstance(dataset, dict) and isinstance(sampler, dict)
    if not are_given or dataset.get('type') is SeededDataset:
        return dataloader
    rest = {key: value for key, value in dataloader.items() if key != 'drop_last'}
    batches = dict(drop_last=dataloader.get('drop_last', False), batches=dataloader.get('batch_sampler'))
    return type(dataloader)(
        rest,
        dataset=dict(type=SeededDataset, dataset=dataset),
        sampler=dict(type=SeededSampler, sampler=sampler, **views),
        batch_sampler=dict(type=SkippingBatchSampler, **batches),
    )


def prefer_deterministic_kernels() -> None:
    """Let this process take kernels that add in one order, where there are any.

    torch warns of its own others. On a GPU, attention is computed in plain matrix products, which
    keep the weights of all pairs of tokens: the backward of its fused CUDA kernels adds in any order
    unless torch is told to raise errors instead of warnings. Deformable attention follows torch's
    setting by itself. Call it before the first work on a GPU; it lasts until the process ends.
    """
    os.environ.setdefault('CUBLAS_WORKSPACE_CONFIG', ':4096:8')
    torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic = False, True
    # the CPU's fused kernel, which these switch as well, adds in one order
    if torch.cuda.is_available():
        torch.backends.cuda.enable_flash_sdp(False)
        torch.backends.cuda.enable_mem_efficient_sdp(False)
        torch.backends.cuda.enable_cudnn_sdp(False)
    torch.use_deterministic_algorithms(True, warn_only=True)

"""Randomness as a function of (seed, position), so that a resumed or a split run draws what one long run draws.

The position of a training sample is its place in the stream that all processes share. Its augmentations are drawn
from ``(seed, epoch, position)`` and the model's own randomness (drop path, sampled proposals) from
``(seed, iteration, rank)``: neither depends on the number of workers, on how often a run was killed, nor, for the
samples, on how many processes share the batch.
"""

import contextlib
import itertools
import random
from collections.abc import Iterator

import numpy as np
import torch
from mmengine.dist import get_dist_info
from mmengine.registry import DATA_SAMPLERS, DATASETS
from torch.utils.data import BatchSampler, DataLoader, Dataset, Sampler


def derive_seed(*key: int) -> int:
    """A well mixed 32-bit seed for a key of non-negative integers."""
    return int(np.random.SeedSequence(key).generate_state(1)[0])


def seed_everything(seed: int) -> None:
    """Seeds Python's, NumPy's and torch's generators (those of the GPUs too)."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


@contextlib.contextmanager
def isolated(seed: int) -> Iterator[None]:
    """Runs a block on freshly seeded CPU generators and puts the old states back."""
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    random.seed(seed)
    np.random.seed(seed)
    torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])


class Draw(int):
    """A sample's index that also carries the seed of its augmentations."""

    seed: int

    def __new__(cls, index: int, seed: int) -> 'Draw':
        draw = super().__new__(cls, index)
        draw.seed = seed
        return draw

    def __reduce__(self):
        return Draw, (int(self), self.seed)


class SeededDataset(Dataset):
    """A data set whose sample at a :class:`Draw` is a function of the draw; everything else is the inner data set."""

    def __init__(self, dataset: dict | Dataset) -> None:
        self.dataset = DATASETS.build(dataset) if isinstance(dataset, dict) else dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int):
        if not isinstance(index, Draw):
            return self.dataset[index]
        with isolated(index.seed):
            return self.dataset[int(index)]

    def __getattr__(self, name: str):
        if name == 'dataset' or name.startswith('__'):
            raise AttributeError(name)
        return getattr(self.dataset, name)


class SeededSampler(Sampler):
    """Yields the inner sampler's indices as :class:`Draw`.

    Args:
        sampler: MMEngine samplers that deal every ``world_size``-th index of one shared stream to a rank, so that
            place ``i`` of rank ``r`` is position ``i * world_size + r`` of the stream.
        seed: The run's seed.
    """

    def __init__(self, sampler: Sampler, seed: int) -> None:
        self.sampler, self.seed = sampler, seed
        self.epoch = 0
        self.rank, self.world_size = get_dist_info()

    def __iter__(self) -> Iterator[Draw]:
        return self._draws(iter(self.sampler), 0)

    def _draws(self, indices: Iterator[int], start: int) -> Iterator[Draw]:
        for place, index in zip(itertools.count(start), indices):
            position = place * self.world_size + self.rank
            yield Draw(index, derive_seed(self.seed, self.epoch, position))

    def __len__(self) -> int:
        return len(self.sampler)

    def set_epoch(self, epoch: int) -> None:
        """Tells the inner sampler too, where it cares."""
        self.epoch = epoch
        if hasattr(self.sampler, 'set_epoch'):
            self.sampler.set_epoch(epoch)

    def __getattr__(self, name: str):
        if name == 'sampler' or name.startswith('__'):
            raise AttributeError(name)
        return getattr(self.sampler, name)


class SeededInfiniteSampler(SeededSampler):
    """The same for an endless sampler, which has no epochs and can be put at any place."""

    start = 0

    def __iter__(self) -> Iterator[Draw]:
        return self._draws(iter(self.sampler), self.start)

    def set_epoch(self, epoch: int) -> None:
        """An endless stream has no epochs."""

    def skip(self, num_samples: int) -> None:
        """Goes to the place after ``num_samples`` samples of this rank, loading nothing."""
        self.start = num_samples
        self.sampler.skip(num_samples)


def build_seeded_sampler(sampler: dict, dataset: Dataset, seed: int | None) -> Sampler:
    """Builds an MMEngine sampler and wraps it; without a seed it is left as it is."""
    inner = DATA_SAMPLERS.build(sampler, default_args=dict(dataset=dataset, seed=seed))
    if seed is None:
        return inner
    return (SeededInfiniteSampler if hasattr(inner, 'skip') else SeededSampler)(inner, seed)


class SkippingBatchSampler(Sampler):
    """Batches of indices whose beginning can be left out, which loads nothing.

    Args:
        sampler: Of single indices.
        batch_size: Images in a batch.
        drop_last: Whether a last batch that is not full is left out.
        batches: The configuration of another batch sampler, by aspect ratio for example; None for batches in order.
    """

    def __init__(
        self, sampler: Sampler, batch_size: int, drop_last: bool = False, batches: dict | None = None
    ) -> None:
        self.sampler, self.batch_size = sampler, batch_size
        self.in_order, self.ahead = batches is None, 0
        if batches is None:
            self.batches = BatchSampler(sampler, batch_size, drop_last)
        else:
            self.batches = DATA_SAMPLERS.build(batches, default_args=dict(sampler=sampler, batch_size=batch_size))

    def __iter__(self) -> Iterator[list[int]]:
        # a generator, because a loader with workers asks for two iterators and reads the second
        ahead, self.ahead = self.ahead, 0
        yield from itertools.islice(iter(self.batches), ahead, None)

    def __len__(self) -> int:
        return len(self.batches)

    def skip(self, count: int) -> int:
        """Has the next pass begin after ``count`` batches of the run, and returns the number of its epoch."""
        endless = hasattr(self.sampler, 'skip')
        if endless and self.in_order:
            self.sampler.skip(count * self.batch_size)
            return 0
        epoch, self.ahead = (0, count) if endless else divmod(count, len(self))
        self.sampler.set_epoch(epoch)
        return epoch


class Batches:
    """The endless stream of batches of a training counted in iterations; an epoch follows the other at once."""

    def __init__(self, dataloader: DataLoader) -> None:
        self.dataloader = dataloader
        self.epoch = 0
        self.batches: Iterator | None = None

    def __iter__(self) -> 'Batches':
        return self

    def __next__(self):
        if self.batches is None:
            self.batches = iter(self.dataloader)
        try:
            return next(self.batches)
        except StopIteration:
            self.epoch += 1
            self.dataloader.batch_sampler.sampler.set_epoch(self.epoch)
            self.batches = iter(self.dataloader)
            return next(self.batches)

    def skip_iter(self, count: int) -> None:
        """Goes to the place after ``count`` batches; MMEngine's loop calls it when it resumes."""
        self.epoch = self.dataloader.batch_sampler.skip(count)


def seeded_dataloader(dataloader: dict) -> dict:
    """A training dataloader's configuration with data set and samplers wrapped; the one given stays as it is."""
    dataset, sampler = dataloader.get('dataset'), dataloader.get('sampler')
    if not isinstance(dataset, dict) or not isinstance(sampler, dict) or dataset.get('type') is SeededDataset:
        return dataloader
    rest = {key: value for key, value in dataloader.items() if key != 'drop_last'}
    batches = dict(drop_last=dataloader.get('drop_last', False), batches=dataloader.get('batch_sampler'))
    return type(dataloader)(
        rest,
        dataset=dict(type=SeededDataset, dataset=dataset),
        sampler=dict(type=build_seeded_sampler, sampler=sampler),
        batch_sampler=dict(type=SkippingBatchSampler, **batches),
    )

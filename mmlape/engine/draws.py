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
from torch.utils.data import Dataset, Sampler


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


def seeded_dataloader(dataloader: dict) -> dict:
    """A training dataloader's configuration with data set and sampler wrapped; the one given stays as it is."""
    dataset, sampler = dataloader.get('dataset'), dataloader.get('sampler')
    if not isinstance(dataset, dict) or not isinstance(sampler, dict) or dataset.get('type') is SeededDataset:
        return dataloader
    return type(dataloader)(
        dataloader,
        dataset=dict(type=SeededDataset, dataset=dataset),
        sampler=dict(type=build_seeded_sampler, sampler=sampler),
    )

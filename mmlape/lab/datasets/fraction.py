"""Training on a fraction of the images.

A subset that follows from a seed, with all smaller fractions inside it.

    subset(f) = the first round(f N) of a permutation of the N images, which the seed decides

A configuration says so by ``data_fraction=0.25`` (or '1/16') and ``data_fraction_seed``, 0 by
default: all runs then have the same subset. With ``data_fraction_seed='run'`` each run has the
subset of its own seed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from mmengine.registry import DATASETS

from mmlape.console.log import log
from mmlape.errors import ConfigError
from mmlape.lab.datasets.data_content import contents_of

KEYS = ('data_fraction', 'data_fraction_seed')
OF_RUN = 'run'


@dataclass(frozen=True)
class DataFraction:
    """The share of the training images that a configuration trains on, and their seed ('run': the run's)."""

    share: Fraction
    seed: int | str = 0

    def indices(self, count: int, run_seed: int) -> list[int]:
        """Return the indices of the subset of ``count`` images, in their order."""
        seed = run_seed if self.seed == OF_RUN else self.seed
        # NumPy keeps this stream over its versions
        order = np.random.RandomState(seed).permutation(count)
        return sorted(order[: round(self.share * count)].tolist())

    def __str__(self) -> str:
        return f'data_fraction={self.share}, data_fraction_seed={self.seed}'


def parse_fraction(value: Any) -> Fraction:
    """Return a fraction above 0, at most 1, of a number or a text such as '1/16', or raise ConfigError."""
    try:
        # the decimal that is written, not the binary number that a float holds
        share = Fraction(str(value))
    except (ValueError, ZeroDivisionError):
        share = Fraction(0)
    if isinstance(value, bool) or not 0 < share <= 1:
        raise ConfigError(f'data_fraction={value}: give a number above 0, at most 1, such as 0.25 or 1/16')
    return share


def label(share: Fraction) -> str:
    """Return a fraction as names of arms and folders have it: '1of16'."""
    return f'{share.numerator}of{share.denominator}'


def data_fraction(cfg: Mapping) -> DataFraction | None:
    """Return the fraction that a configuration trains on; None for all images.

    Other values raise ConfigError.
    """
    share, seed = (cfg.get(key) for key in KEYS)
    share = Fraction(1) if share is None else parse_fraction(share)
    seed = 0 if seed is None else seed
    if seed != OF_RUN and (type(seed) is not int or not 0 <= seed < 2**32):
        raise ConfigError(f"data_fraction_seed={seed}: give a number from 0 to 2**32 - 1, or 'run' for the run's seed")
    return None if share == 1 else DataFraction(share, seed)


def with_fraction(dataset: dict, fraction: DataFraction, run_seed: int, least: int) -> dict:
    """Return a dataset's configuration with the subset of each dataset in it.

    The given one is unchanged.

    Args:
        dataset: May be a wrapper, such as a concatenation, of each part of which the fraction is
            taken.
        fraction: The share.
        run_seed: The run's seed.
        least: The images that a subset must have: those of an optimiser step.
    """
    if 'dataset' in dataset:
        return type(dataset)(dataset, dataset=with_fraction(dataset['dataset'], fraction, run_seed, least))
    if 'datasets' in dataset:
        parts = [with_fraction(part, fraction, run_seed, least) for part in dataset['datasets']]
        return type(dataset)(dataset, datasets=parts)
    return dict(type=_subset, dataset=dataset, fraction=fraction, run_seed=run_seed, least=least)


def _subset(dataset: dict, fraction: DataFraction, run_seed: int, least: int) -> Any:
    """Build a dataset and keep the subset of it.

    The images that the dataset's own filter keeps are all images.
    """
    from mmengine.dist import is_main_process  # here, as a report reads records without torch

    built = DATASETS.build(dataset)
    if not hasattr(built, 'get_subset_'):
        raise ConfigError(f'{fraction} needs a dataset of MMEngine, but {type(built).__name__} is none')
    count = len(built)
    indices = fraction.indices(count, run_seed)
    if len(indices) < least:
        raise ConfigError(
            f'{fraction}: {len(indices)} of {count} training images, fewer than the {least} of an '
            'optimiser step; give a larger data_fraction or a smaller train_dataloader.batch_size'
        )
    if is_main_process():
        (built.complete_content,) = contents_of(built)  # runs of other subsets are repeats
    built.get_subset_(indices)
    log(f'{fraction}: training on {len(indices)} of {count} images')
    return built

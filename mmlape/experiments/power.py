"""How many seeds a difference needs: the power of the t-tests of `statistics`, from the spread of a pilot.

A pilot of a few seeds estimates its standard deviation poorly: with n = 5 the 95 % interval (chi-square) is from 0.6
to 2.9 times the estimate, and the seeds needed grow with its square. So both ends of the interval are reported.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import chi2
from statsmodels.stats.power import TTestIndPower, TTestPower

from mmlape.errors import ConfigError
from mmlape.experiments.statistics import CONFIDENCE, LEAST

POWER = 0.8
MOST = 1_000_000
"""The largest number of seeds that is tried."""


@dataclass(frozen=True)
class Spread:
    """A standard deviation over seeds, and its uncertainty.

    Attributes:
        std: Of one arm's values; for a paired design, of the differences between two arms' values of a seed.
        freedom: Degrees of freedom of the estimate; None if they are unknown.
    """

    std: float
    freedom: int | None = None

    def interval(self) -> tuple[float, float] | None:
        """Return the chi-square 95 % interval of the standard deviation; None without degrees of freedom."""
        if not self.freedom:
            return None
        tail = (1 - CONFIDENCE) / 2
        low, high = (self.std * math.sqrt(self.freedom / chi2.ppf(q, self.freedom)) for q in (1 - tail, tail))
        return low, high


def pooled(arms: Sequence[Sequence[float]]) -> Spread | None:
    """Pool the spreads of arms: variances averaged by their degrees of freedom; None if n < 2 in all."""
    arms = [np.asarray(values, dtype=float) for values in arms if len(values) > 1]
    freedom = sum(len(values) - 1 for values in arms)
    if not freedom:
        return None
    return Spread(math.sqrt(sum(np.var(values, ddof=1) * (len(values) - 1) for values in arms) / freedom), freedom)


def of_differences(values: Mapping[int, float], baseline: Mapping[int, float]) -> Spread | None:
    """Return the spread of the differences over common seeds; None for fewer than two."""
    return pooled([[values[seed] - baseline[seed] for seed in values if seed in baseline]])


def power(difference: float, std: float, seeds: int, paired: bool = False) -> float:
    """Return the probability of finding a difference at the 5 % level, two-sided.

    Args:
        difference: The true difference, in the metric's unit.
        std: As `Spread.std`, the same in both arms.
        seeds: Their number in each of two arms.
        paired: Whether the test is on the differences over common seeds.
    """
    test, effect = _test(paired), abs(difference) / std
    both = test.power(effect, seeds, 1 - CONFIDENCE)
    # The probability of the wrong sign may underflow to NaN; it is left out then.
    return float(test.power(effect, seeds, (1 - CONFIDENCE) / 2, alternative='larger') if np.isnan(both) else both)


def seeds_needed(difference: float, std: float, wanted: float = POWER, paired: bool = False) -> int | None:
    """Return the smallest number of seeds in each arm that reaches a power; at least 3, below which nothing is tested.

    Args:
        difference: The true difference, in the metric's unit.
        std: As `Spread.std`.
        wanted: The power.
        paired: As in `power`.

    Returns:
        None if a million seeds are not enough.

    Raises:
        ConfigError: A difference or a deviation is not positive, or the power is not between 0.05 and 1.
    """
    if not (math.isfinite(difference) and difference):
        raise ConfigError(f'a difference of {difference} cannot be tested: give one that is not 0')
    if not (math.isfinite(std) and std > 0):
        raise ConfigError(f'a standard deviation of {std} gives no number of seeds: it must be positive')
    if not 1 - CONFIDENCE < wanted < 1:
        raise ConfigError(f'a power of {wanted} is out of range: give one between {1 - CONFIDENCE:.2f} and 1')
    if power(difference, std, LEAST, paired) >= wanted:
        return LEAST
    if power(difference, std, MOST, paired) < wanted:
        return None
    options = dict(effect_size=abs(difference) / std, alpha=1 - CONFIDENCE, power=wanted)
    seeds = math.ceil(_test(paired).solve_power(**options))
    while power(difference, std, seeds, paired) < wanted:  # the solver stops early where a probability underflows
        seeds += 1
    return seeds


def _test(paired: bool) -> TTestPower | TTestIndPower:
    return TTestPower() if paired else TTestIndPower()

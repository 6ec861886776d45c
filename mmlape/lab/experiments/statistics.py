"""Means over seeds with their intervals, differences between two arms with intervals and p, and Holm's correction.

Student's t for one arm and for the differences of runs paired by their seed are statsmodels'
(`DescrStatsW`), as is Holm's step-down procedure (`multipletests`); Welch's t of two arms is of many
pairs of arms at once, for `sequential`. Fewer than three values give neither interval nor p: with one
degree of freedom an interval reaches 12.7 standard errors to either side. Neither do values without
any spread: their t is undefined.

How many seeds a difference needs follows from the spread of a pilot, which a few seeds estimate
poorly: with n = 5 the 95 % interval (chi-square) is from 0.6 to 2.9 times the estimate, and the
seeds needed grow with its square. So both ends of the interval are reported.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import chi2
from scipy.stats import t as student
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.power import TTestIndPower, TTestPower
from statsmodels.stats.weightstats import DescrStatsW

from mmlape.errors import ConfigError

CONFIDENCE = 0.95
INTERVAL = f'{CONFIDENCE:.0%} interval'
LEAST = 3
TOO_FEW = f'n < {LEAST}'
NO_SPREAD = 'no spread'
DECISIONS = {
    'better': 'is better than',
    'worse': 'is worse than',
    'equal': 'is within the margin of',
    '': 'is undecided against',
}
"""What a sentence says of an arm and its baseline, by the decision."""
_ROUNDING, _ROUNDING_OF_DIFFERENCES = 1e-12, 3e-7
"""Relative to the values: a standard deviation below this is that of rounding errors. Metrics may be float32: the
same value has the same rounding, the differences of two pairs of values have not."""


@dataclass(frozen=True)
class Estimate:
    """The mean of some values, and how sure it is.

    Attributes:
        mean: Their mean; None without a value.
        std: The sample standard deviation (n - 1 below); None for n < 2.
        n: How many values there are.
        low: The lower end of the 95 % interval of the mean; None where there is none.
        high: The upper end.
        note: Why there is no interval; None where there is one.
    """

    mean: float | None
    std: float | None
    n: int
    low: float | None = None
    high: float | None = None
    note: str | None = None


@dataclass(frozen=True)
class Difference:
    """A difference of two arms' means, the first minus the second."""

    mean: float | None  # None if an arm has no value
    # how many values of the first and of the second arm; of pairs, twice the same
    n: tuple[int, int]
    # low, high: the 95 % interval; None where there is none
    low: float | None = None
    high: float | None = None
    p: float | None = None  # two-sided, of no difference; None where there is none
    # ``p`` after Holm's correction over its family; None before `holm`, or where there is no ``p``
    holm: float | None = None
    note: str | None = None  # why there is neither interval nor ``p``; None where there are


def estimate(values: Sequence[float]) -> Estimate:
    """Return mean, sample standard deviation, and Student's 95 % interval of the mean."""
    values, n = np.asarray(values, dtype=float), len(values)
    mean = math.fsum(values) / n if n else None
    std = float(_std(values)) if n > 1 else None
    if n < LEAST or std == 0:
        return Estimate(mean, std, n, note=TOO_FEW if n < LEAST else NO_SPREAD)
    low, high = DescrStatsW(values).tconfint_mean(1 - CONFIDENCE)
    return Estimate(mean, std, n, float(low), float(high))


def welch(values: Sequence[float], baseline: Sequence[float]) -> Difference:
    """Return the difference of two arms' means with Welch's interval and p.

    Variances and seeds may differ.
    """
    values, baseline = np.asarray(values, dtype=float), np.asarray(baseline, dtype=float)
    n = (len(values), len(baseline))
    mean = float(np.mean(values) - np.mean(baseline)) if min(n) else None
    if min(n) < LEAST:
        return Difference(mean, n, note=TOO_FEW)
    _, error, freedom = welch_t(values, baseline)
    if np.isnan(error):
        return Difference(mean, n, note=NO_SPREAD)
    reach = float(student.isf((1 - CONFIDENCE) / 2, freedom) * error)
    return Difference(mean, n, mean - reach, mean + reach, float(2 * student.sf(abs(mean) / error, freedom)))


def welch_t(values: np.ndarray, baseline: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the difference of means along the last axis, its standard error, and Welch's degrees of freedom.

    Where neither arm has a spread, the error is NaN: nothing is tested there.
    """
    a, b = (_std(arm) ** 2 / arm.shape[-1] for arm in (values, baseline))
    error = np.sqrt(np.where(a + b > 0, a + b, np.nan))
    freedom = error**4 / (a**2 / (values.shape[-1] - 1) + b**2 / (baseline.shape[-1] - 1))
    return values.mean(-1) - baseline.mean(-1), error, freedom


def paired(values: Mapping[int, float], baseline: Mapping[int, float]) -> Difference:
    """Return the mean difference over the common seeds of two arms ``{seed: value}``, with its t interval and p."""
    differences, std = _differences(values, baseline)
    n = (len(differences), len(differences))
    mean = float(differences.mean()) if len(differences) else None
    if len(differences) < LEAST:
        return Difference(mean, n, note=TOO_FEW)
    if std == 0:
        return Difference(mean, n, note=NO_SPREAD)
    described = DescrStatsW(differences)
    low, high = described.tconfint_mean(1 - CONFIDENCE)
    _, p, _ = described.ttest_mean(0)
    return Difference(mean, n, float(low), float(high), float(p))


def holm(family: Sequence[Difference]) -> list[Difference]:
    """Correct the p values of a family of comparisons; those without p are not members of it."""
    tested = [place for place, one in enumerate(family) if one.p is not None]
    result = list(family)
    if tested:
        _, corrected, _, _ = multipletests([family[place].p for place in tested], method='holm')
        for place, p in zip(tested, corrected):
            result[place] = replace(family[place], holm=float(p))
    return result


def _differences(values: Mapping[int, float], baseline: Mapping[int, float]) -> tuple[np.ndarray, float]:
    """Return the differences over common seeds, and their sample standard deviation, 0 for fewer than two."""
    common = [seed for seed in values if seed in baseline]
    differences = np.array([values[seed] - baseline[seed] for seed in common], dtype=float)
    size = max((abs(row[seed]) for row in (values, baseline) for seed in common), default=0)
    return differences, float(_std(differences, size)) if len(common) > 1 else 0.0


def _std(values: np.ndarray, size: float | None = None) -> np.ndarray:
    """Return the sample standard deviation along the last axis.

    0 if it is that of rounding errors, of differences of values of a size.
    """
    std = values.std(-1, ddof=1)
    least = _ROUNDING * np.abs(values).max(-1) if size is None else _ROUNDING_OF_DIFFERENCES * size
    return np.where(std > least, std, 0.0)


POWER = 0.8
MOST = 1_000_000
"""The largest number of seeds that is tried."""


@dataclass(frozen=True)
class Spread:
    """A standard deviation over seeds, and its uncertainty."""

    # of one arm's values; for a paired design, of the differences between two arms' values of a
    # seed
    std: float
    freedom: int | None = None  # degrees of freedom of the estimate; None if they are unknown

    def interval(self) -> tuple[float, float] | None:
        """Return the chi-square 95 % interval of the standard deviation.

        None without degrees of freedom.
        """
        if not self.freedom:
            return None
        tail = (1 - CONFIDENCE) / 2
        low, high = (math.sqrt(self.freedom / chi2.ppf(q, self.freedom)) for q in (1 - tail, tail))
        return self.std * low, self.std * high


def pooled(arms: Sequence[Sequence[float]]) -> Spread | None:
    """Pool the spreads of arms: variances averaged by their degrees of freedom.

    None if n < 2 in all.
    """
    arms = [np.asarray(values, dtype=float) for values in arms if len(values) > 1]
    freedom = sum(len(values) - 1 for values in arms)
    if not freedom:
        return None
    return Spread(math.sqrt(sum(np.var(values, ddof=1) * (len(values) - 1) for values in arms) / freedom), freedom)


def of_differences(values: Mapping[int, float], baseline: Mapping[int, float]) -> Spread | None:
    """Return the spread of the differences over common seeds; None for fewer than two."""
    differences, std = _differences(values, baseline)
    return Spread(std, len(differences) - 1) if len(differences) > 1 else None


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
    if np.isnan(both):
        return float(test.power(effect, seeds, (1 - CONFIDENCE) / 2, alternative='larger'))
    return float(both)


def seeds_needed(difference: float, std: float, wanted: float = POWER, paired: bool = False) -> int | None:
    """Return the smallest number of seeds in each arm that reaches a power.

    At least 3, below which nothing is tested. ``difference``, ``std`` and ``paired`` as in `power`.
    None if a million seeds are not enough.

    Raises:
        ConfigError: A difference or a deviation is not positive, or the power is not between 0.05
            and 1.
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
    # the solver stops early where a probability underflows
    while power(difference, std, seeds, paired) < wanted:
        seeds += 1
    return seeds


def _test(paired: bool) -> TTestPower | TTestIndPower:
    return TTestPower() if paired else TTestIndPower()

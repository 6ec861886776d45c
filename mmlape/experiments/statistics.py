"""Means over seeds with their intervals, differences between two arms with intervals and p, and Holm's correction.

The formulas are statsmodels': Student's t for one arm (`DescrStatsW`), Welch's t for two (`CompareMeans`, unequal
variances), t on the differences for runs paired by their seed, Holm's step-down procedure (`multipletests`). Fewer
than three values give neither interval nor p: with one degree of freedom an interval reaches 12.7 standard errors to
either side. Neither do values without any spread: their t is undefined.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.weightstats import CompareMeans, DescrStatsW

CONFIDENCE = 0.95
LEAST = 3
TOO_FEW = f'n < {LEAST}'
NO_SPREAD = 'no spread'
_ROUNDING = 1e-12
"""Relative to the values: a standard deviation below this is that of rounding errors."""


@dataclass(frozen=True)
class Estimate:
    """The mean of an arm's values.

    Attributes:
        mean: None for no value.
        std: Sample standard deviation (n - 1 below); None for n < 2.
        n: How many values.
        low, high: The 95 % interval of the mean; None where there is none.
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
    """A difference of two arms' means, the first minus the second.

    Attributes:
        mean: None if an arm has no value.
        n: How many values of the first and of the second arm; of pairs, twice the same.
        low, high: The 95 % interval; None where there is none.
        p: Two-sided, of no difference; None where there is none.
        holm: ``p`` after Holm's correction over its family; None before `holm`, or where there is no ``p``.
        note: Why there is neither interval nor ``p``; None where there are.
    """

    mean: float | None
    n: tuple[int, int]
    low: float | None = None
    high: float | None = None
    p: float | None = None
    holm: float | None = None
    note: str | None = None


def estimate(values: Sequence[float]) -> Estimate:
    """Return mean, sample standard deviation, and Student's 95 % interval of the mean."""
    values, n = np.asarray(values, dtype=float), len(values)
    if n == 0:
        return Estimate(None, None, 0, note=TOO_FEW)
    mean = math.fsum(values) / n
    if n == 1:
        return Estimate(mean, None, 1, note=TOO_FEW)
    std = _std(values)
    if n < LEAST or std == 0:
        return Estimate(mean, std, n, note=TOO_FEW if n < LEAST else NO_SPREAD)
    low, high = DescrStatsW(values).tconfint_mean(1 - CONFIDENCE)
    return Estimate(mean, std, n, float(low), float(high))


def welch(values: Sequence[float], baseline: Sequence[float]) -> Difference:
    """Return the difference of two arms' means with Welch's interval and p: variances and seeds may differ."""
    values, baseline = np.asarray(values, dtype=float), np.asarray(baseline, dtype=float)
    n = (len(values), len(baseline))
    if min(n) == 0:
        return Difference(None, n, note=TOO_FEW)
    mean = float(np.mean(values) - np.mean(baseline))
    if min(n) < LEAST:
        return Difference(mean, n, note=TOO_FEW)
    if _std(values) == 0 and _std(baseline) == 0:
        return Difference(mean, n, note=NO_SPREAD)
    means = CompareMeans(DescrStatsW(values), DescrStatsW(baseline))
    low, high = means.tconfint_diff(1 - CONFIDENCE, usevar='unequal')
    _, p, _ = means.ttest_ind(usevar='unequal')
    return Difference(mean, n, float(low), float(high), float(p))


def paired(values: Mapping[int, float], baseline: Mapping[int, float]) -> Difference:
    """Return the mean difference over the common seeds of two arms, with its t interval and p.

    Args:
        values: ``{seed: value}``.
        baseline: The same of the other arm.
    """
    common = [seed for seed in values if seed in baseline]
    n = (len(common), len(common))
    if not common:
        return Difference(None, n, note=TOO_FEW)
    differences = np.array([values[seed] - baseline[seed] for seed in common], dtype=float)
    mean = float(differences.mean())
    if len(common) < LEAST:
        return Difference(mean, n, note=TOO_FEW)
    size = max(abs(row[seed]) for row in (values, baseline) for seed in common)
    if _std(differences, size) == 0:
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


def _std(values: np.ndarray, size: float | None = None) -> float:
    """Return the sample standard deviation; 0 if it is that of rounding errors of numbers of a size."""
    std = float(values.std(ddof=1))
    size = float(np.abs(values).max()) if size is None else size
    return std if std > _ROUNDING * size else 0.0

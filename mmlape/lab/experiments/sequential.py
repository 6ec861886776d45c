"""Comparisons over seeds that may stop at any look: Welch's interval at a level of its own for each number of seeds.

With n seeds of either arm, of at most N, the interval has the level 1 - a_n,

    a_n = c n / N,    c: P(an interval of n = 3 ... N misses the true difference) = alpha,

so all intervals hold at once with probability 1 - alpha, whenever one looks. A comparison is decided as soon as the
interval excludes 0, or lies within the margin. It is a group-sequential design whose levels grow with n: of the shapes
that docs/results/until.py simulates, this one needs about as few seeds as equal levels (Pocock's) where a difference
is large, and finds more where it is small.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from mmlape.errors import ConfigError
from mmlape.lab.experiments.statistics import LEAST

STUDIES = 50_000
"""Simulated ones, by which c is found; alpha is met within 0.001."""
RATIO = 8
"""Of the standard deviations of two arms: c is smallest near it, where Welch's t is least exact."""


@dataclass(frozen=True)
class SequentialPlan:
    """What is fixed before the first seed.

    Attributes:
        margin: In points: a difference that is certainly smaller in size does not matter.
        most: The largest number of seeds of an arm.
        alpha: The probability of any wrong decision in the study.
        comparisons: How many arms are compared with the baseline; each has its share of alpha (Bonferroni).
    """

    margin: float
    most: int = 20
    alpha: float = 0.05
    comparisons: int = 1

    def __post_init__(self):
        if not self.margin > 0:
            raise ConfigError(
                f'--until {self.margin:g}: give the smallest difference that matters, in points, such as 0.3'
            )
        if self.most < LEAST:
            raise ConfigError(f'--max-seeds {self.most}: an interval needs {LEAST} seeds or more')
        if not 0 < self.alpha < 0.5:
            raise ConfigError(f'--alpha {self.alpha:g}: give a probability of a wrong decision, such as 0.05')

    @property
    def levels(self) -> np.ndarray:
        """Return a_n for n = 3 ... ``most``."""
        return _levels(self.most, self.alpha / self.comparisons)


@dataclass(frozen=True)
class Look:
    """What is known with n seeds: the difference, arm minus baseline, its interval, and what that decides."""

    n: int
    mean: float
    low: float
    high: float
    decision: str  # 'better', 'worse', 'equal' (within the margin), or '' while it is undecided


def looks(
    plan: SequentialPlan, values: Mapping[int, float], baseline: Mapping[int, float], order: Sequence[int]
) -> list[Look]:
    """Return what was known with 3, 4, ... seeds, up to the first look that decides.

    Args:
        plan: Of the study.
        values: Of an arm by seed, in points, larger is better. A seed that either arm lacks does not count.
        baseline: Of the arm that it is compared with.
        order: The seeds in the order of the plan; nobody can choose among them.
    """
    seeds = [seed for seed in order if seed in values and seed in baseline][: plan.most]
    found: list[Look] = []
    for n, level in zip(range(LEAST, len(seeds) + 1), plan.levels):
        arms = (np.array([[by_seed[seed] for seed in seeds[:n]]]) for by_seed in (values, baseline))
        mean, error, freedom = (float(value[0, -1]) for value in _welch(*arms))
        reach = stats.t.isf(level / 2, freedom) * error
        found.append(Look(n, mean, mean - reach, mean + reach, _decision(mean - reach, mean + reach, plan.margin)))
        if found[-1].decision:
            break
    return found


def _decision(low: float, high: float, margin: float) -> str:
    if low > 0 or high < 0:
        return 'better' if low > 0 else 'worse'
    return 'equal' if -margin < low and high < margin else ''


def decide(
    plan: SequentialPlan, values: np.ndarray, baseline: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Decide many studies at once.

    Args:
        plan: Of each of them.
        values: Of the arm, (studies, seeds), with ``plan.most`` seeds.
        baseline: Of the baseline.

    Returns:
        Of each study, the number of seeds at which it stops, and whether the arm is then better, and worse.
    """
    mean, error, freedom = (value[:, LEAST - 1 :] for value in _welch(values, baseline))
    reach = stats.t.isf(plan.levels / 2, freedom) * error
    low, high = mean - reach, mean + reach
    decided = (low > 0) | (high < 0) | ((low > -plan.margin) & (high < plan.margin))
    last = np.where(decided.any(1), decided.argmax(1), decided.shape[1] - 1)
    rows = np.arange(len(last))
    return last + LEAST, low[rows, last] > 0, high[rows, last] < 0


def expected_seeds(plan: SequentialPlan, difference: float, std: float, studies: int = 20_000) -> tuple[float, float]:
    """Return the mean number of seeds of an arm until a decision, and the share of studies that find the difference.

    Args:
        plan: Of the study.
        difference: The true one, in points.
        std: Of one arm over seeds, in points.
        studies: How many are simulated.
    """
    random = np.random.default_rng(0)
    values, baseline = (random.normal(mean, std, (studies, plan.most)) for mean in (difference, 0.0))
    seeds, better, worse = decide(plan, values, baseline)
    return float(seeds.mean()), float((better | worse).mean())


def _welch(values: np.ndarray, baseline: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return difference, standard error and degrees of freedom with 1, 2, ... seeds of arms (studies, seeds)."""
    n = np.arange(1, values.shape[1] + 1)
    means = [arm.cumsum(1) / n for arm in (values, baseline)]
    centred = [arm - arm[:, :1] for arm in (values, baseline)]  # a large mean would hide in rounding
    sums = [(arm**2).cumsum(1) - arm.cumsum(1) ** 2 / n for arm in centred]
    a, b = (np.maximum(total, 0) / np.maximum(n - 1, 1) for total in sums)
    with np.errstate(divide='ignore', invalid='ignore'):
        freedom = (a + b) ** 2 * np.maximum(n - 1, 1) / (a**2 + b**2)
    return means[0] - means[1], np.sqrt((a + b) / n), np.nan_to_num(freedom, nan=1.0)


@functools.cache
def _levels(most: int, alpha: float) -> np.ndarray:
    """Return a_n; the same on every machine, since the simulation has a fixed seed."""
    random, shape = np.random.default_rng(0), np.arange(LEAST, most + 1) / most
    standard = random.normal(size=(2, STUDIES, most))
    mean, error, freedom = (value[:, LEAST - 1 :] for value in _welch(standard[0], standard[1] / RATIO))
    p = 2 * stats.t.sf(np.abs(mean) / error, freedom)
    return np.quantile((p / shape).min(1), alpha) * shape

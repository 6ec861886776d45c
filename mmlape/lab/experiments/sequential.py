"""Comparisons over seeds that may stop at any look: Welch's interval at a level of its own for each number of seeds.

With n seeds of either arm, of at most N, the interval has the level 1 - a_n,

    a_n = c n / N,    c: P(an interval of n = 3 ... N misses the true difference) = alpha,

so all intervals hold at once with probability 1 - alpha, whenever one looks. A comparison is decided as soon as the
interval excludes 0, or lies within the margin; where neither arm has a spread there is no interval, and nothing is
decided. It is a group-sequential design whose levels grow with n: of the shapes that docs/results/until.py simulates,
this one needs about as few seeds as equal levels (Pocock's) where a difference is large, and finds more where it is
small.
"""

import functools
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from mmlape.errors import ConfigError
from mmlape.lab.experiments.statistics import LEAST, NO_SPREAD, welch_t

STUDIES = 50_000
"""Simulated ones, by which c is found."""
TRIALS = 20_000
"""Simulated ones, by which numbers of seeds are expected."""
SPENT = 0.95
"""Of alpha by normal values; the rest is for the error of the simulation, and for scores of few images."""
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
    low: float | None  # None without a spread
    high: float | None
    decision: str  # 'better', 'worse', 'equal' (within the margin), or '' while it is undecided

    @property
    def interval(self) -> str:
        """Return '+0.10 to +0.90', or that there is none."""
        return NO_SPREAD if self.low is None else f'{self.low:+.2f} to {self.high:+.2f}'


def looks(
    plan: SequentialPlan, values: Mapping[int, float], baseline: Mapping[int, float], order: Sequence[int]
) -> list[Look]:
    """Return what was known with 3, 4, ... seeds, up to the first look that decides.

    Args:
        plan: Of the study.
        values: Of an arm by seed, in points, larger is better.
        baseline: Of the arm that it is compared with.
        order: The seeds in the order of the plan. Those count that stand before the first one that either arm lacks,
            so that neither a failure nor a run that ends early chooses among them.
    """
    seeds = list(itertools.takewhile(lambda seed: seed in values and seed in baseline, order[: plan.most]))
    if len(seeds) < LEAST:
        return []
    arms = (np.array([[by_seed[seed] for seed in seeds]]) for by_seed in (values, baseline))
    (*intervals, (decisions,)), (last,) = _decide(plan, *arms)
    rows = zip(*(interval[0].tolist() for interval in intervals), decisions.tolist(), strict=True)
    return [
        Look(n, mean, *((None, None) if np.isnan(low) else (low, high)), decision)
        for n, (mean, low, high, decision) in enumerate(itertools.islice(rows, last + 1), LEAST)
    ]


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
    (*_, decisions), last = _decide(plan, values, baseline)
    final = decisions[np.arange(len(last)), last]
    return last + LEAST, final == 'better', final == 'worse'


def _decide(
    plan: SequentialPlan, values: np.ndarray, baseline: np.ndarray
) -> tuple[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray], np.ndarray]:
    """Return difference, ends of the interval and decision of each look, (studies, looks), and which look is the last.

    A comparison with NaN, the interval where there is no spread, is false.
    """
    mean, error, freedom = _tests(values, baseline)
    reach = stats.t.isf(plan.levels[: mean.shape[1]] / 2, freedom) * error
    low, high = mean - reach, mean + reach
    outcomes = {'better': low > 0, 'worse': high < 0, 'equal': (low > -plan.margin) & (high < plan.margin)}
    decisions = np.select(list(outcomes.values()), list(outcomes), '')
    decided = decisions != ''
    last = np.where(decided.any(1), decided.argmax(1), decided.shape[1] - 1)
    return (mean, low, high, decisions), last


def expected_seeds(plan: SequentialPlan, difference: float, std: float) -> tuple[float, float]:
    """Return the mean number of seeds of an arm until a decision, and the share of studies that find the difference.

    Args:
        plan: Of the study.
        difference: The true one, in points.
        std: Of one arm over seeds, in points.
    """
    random = np.random.default_rng(0)
    values, baseline = (random.normal(mean, std, (TRIALS, plan.most)) for mean in (difference, 0.0))
    seeds, better, worse = decide(plan, values, baseline)
    return float(seeds.mean()), float((better | worse).mean())


def _tests(values: np.ndarray, baseline: np.ndarray) -> np.ndarray:
    """Return difference, error and degrees of freedom with 3, 4, ... seeds of arms (studies, seeds)."""
    tests = [welch_t(values[:, :n], baseline[:, :n]) for n in range(LEAST, values.shape[1] + 1)]
    return np.transpose(tests, (1, 2, 0))


@functools.cache
def _levels(most: int, alpha: float) -> np.ndarray:
    """Return a_n; the same on every machine, since the simulation has a fixed seed."""
    random, shape = np.random.default_rng(0), np.arange(LEAST, most + 1) / most
    standard = random.normal(size=(2, STUDIES, most))
    mean, error, freedom = _tests(standard[0], standard[1] / RATIO)
    p = 2 * stats.t.sf(np.abs(mean) / error, freedom)
    return np.quantile((p / shape).min(1), SPENT * alpha) * shape

"""Intervals, tests, corrections and power against scipy's own formulas."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from properties import examples
from scipy import stats

from mmlape.lab.experiments.statistics import (
    NO_SPREAD,
    TOO_FEW,
    Difference,
    Spread,
    estimate,
    holm,
    of_differences,
    paired,
    pooled,
    power,
    seeds_needed,
    welch,
)


def _by_seed(values):
    return dict(enumerate(values))


VALUES = st.lists(st.floats(0, 100, width=32, allow_subnormal=False), min_size=3, max_size=8)


def _by_scipy(values):
    """Return mean, deviation and Student's interval."""
    mean, error = np.mean(values), stats.sem(values)
    return mean, np.std(values, ddof=1), *stats.t.interval(0.95, len(values) - 1, mean, error)


def _spread(values):
    return np.std(values, ddof=1) > 1e-3 * max(1.0, *np.abs(values))


@examples(max_examples=60)
@given(first=VALUES, second=VALUES, order=st.randoms(use_true_random=False))
def test_arms_agree_with_scipy(first, second, order):
    """One arm, two arms, and two arms paired by their seeds, in whatever order these are given."""
    assume(_spread(first) and _spread(second))
    found = estimate(first)
    assert (found.mean, found.std, found.low, found.high) == pytest.approx(_by_scipy(first), rel=1e-7)
    result, oracle = welch(first, second), stats.ttest_ind(first, second, equal_var=False)
    expected = (*oracle.confidence_interval(0.95), oracle.pvalue, np.mean(first) - np.mean(second))
    assert (result.low, result.high, result.p, result.mean) == pytest.approx(expected, rel=1e-7, abs=1e-12)
    assert result.n == (len(first), len(second)) and result.note is None
    freedom = [len(values) - 1 for values in (first, second)]
    variances = [np.var(values, ddof=1) for values in (first, second)]
    spread = pooled([first, [7.0], second, []])
    assert spread.freedom == sum(freedom) and spread.std**2 == pytest.approx(np.average(variances, weights=freedom))
    low, high = spread.interval()
    tails = stats.chi2.sf([spread.freedom * spread.std**2 / end**2 for end in (low, high)], spread.freedom)
    assert tails == pytest.approx([0.025, 0.975])

    seeds = list(range(121, 121 + len(first)))
    one, two = dict(zip(seeds, first)), dict(zip(seeds, second))
    shuffled = list(two)
    order.shuffle(shuffled)
    result = paired(one, {seed: two[seed] for seed in shuffled} | {7: 1e6})
    common = [(one[seed], two[seed]) for seed in seeds if seed in two]
    assert result.n == (len(common), len(common))
    differences = np.subtract(*np.transpose(common))
    if _spread(differences):
        oracle = stats.ttest_rel(*np.transpose(common))
        expected = (*oracle.confidence_interval(0.95), oracle.pvalue, differences.mean())
        assert (result.low, result.high, result.p, result.mean) == pytest.approx(expected, rel=1e-6, abs=1e-12)
        assert of_differences(one, two) == Spread(pytest.approx(np.std(differences, ddof=1)), len(common) - 1)


def holm_by_definition(family):
    tested = sorted(p for p in family if p is not None)
    scaled = [min(1.0, (len(tested) - place) * p) for place, p in enumerate(tested)]
    return [None if p is None else max(scaled[: tested.index(p) + 1]) for p in family]


@examples(max_examples=60)
@given(st.lists(st.none() | st.floats(0, 1, allow_subnormal=False), max_size=7))
def test_holm_is_its_definition(family):
    """The k-th smallest p is the largest (m - j + 1) p_j of those up to it, at most 1; what has no p is left out."""
    found = [one.holm for one in holm([Difference(0.0, (3, 3), p=p) for p in family])]
    assert found == pytest.approx(holm_by_definition(family))


@examples(max_examples=40)
@given(
    difference=st.floats(0.2, 3) | st.floats(-3, -0.2),
    std=st.floats(0.1, 2),
    wanted=st.sampled_from((0.5, 0.8, 0.95)),
    pairs=st.booleans(),
)
def test_seeds_are_the_least_that_scipys_non_central_t_needs(difference, std, wanted, pairs):
    def by_scipy(seeds):
        freedom = seeds - 1 if pairs else 2 * seeds - 2
        shift, bound = abs(difference) / std * np.sqrt(seeds if pairs else seeds / 2), stats.t.ppf(0.975, freedom)
        return stats.nct.sf(bound, freedom, shift) + np.nan_to_num(stats.nct.cdf(-bound, freedom, shift))

    needed = seeds_needed(difference, std, wanted, pairs)
    assert power(difference, std, needed, pairs) == pytest.approx(by_scipy(needed), abs=1e-6)
    assert by_scipy(needed) >= wanted - 1e-6 and (needed == 3 or by_scipy(needed - 1) < wanted + 1e-6)


@pytest.mark.parametrize('n', [0, 1, 2])
def test_fewer_than_three_values_give_neither_interval_nor_p(n):
    values, many = [40.0, 41.0][:n], [39.0, 40.0, 42.0]
    alone = estimate(values)
    assert (alone.n, alone.low, alone.high, alone.note) == (n, None, None, TOO_FEW)
    assert (alone.mean, alone.std) == {0: (None, None), 1: (40.0, None), 2: (40.5, pytest.approx(math.sqrt(0.5)))}[n]
    for result in (welch(values, many), welch(many, values), paired(_by_seed(values), _by_seed(many))):
        assert (result.low, result.high, result.p, result.note) == (None, None, None, TOO_FEW)
        assert (result.mean is None) == (n == 0)
    assert (welch(values, many).n, welch(many, values).n) == ((n, 3), (3, n))


def test_values_without_spread_give_neither_interval_nor_p():
    same, noisy = [0.1 + 0.2] * 3 + [0.3], [0.3, 0.31, 0.29]  # 0.1 + 0.2 is not 0.3 in binary
    assert estimate(same).note == NO_SPREAD and estimate(same).std == 0
    assert welch(same, [0.4] * 3).note == NO_SPREAD
    assert welch(same, [0.4] * 3).mean == pytest.approx(-0.1)
    assert welch(same, noisy).p == pytest.approx(stats.ttest_ind(same, noisy, equal_var=False).pvalue)
    constant = paired(_by_seed([1.1, 2.2, 3.3]), _by_seed([1.0, 2.1, 3.2]))
    assert (constant.note, constant.p) == (NO_SPREAD, None)
    assert paired(_by_seed(noisy), _by_seed(noisy)).note == NO_SPREAD
    shares = {seed: float(np.float32(100 * right / 360)) for seed, right in enumerate((300, 310, 317))}
    more = {seed: float(np.float32(100 * right / 360)) for seed, right in enumerate((303, 313, 320))}
    assert paired(more, shares).note == NO_SPREAD, 'three images each, computed in float32'
    assert of_differences(more, shares) == Spread(0.0, 2) and of_differences(more, {0: 1.0}) is None
    more[2] += 0.001  # an image more of 100,000
    assert paired(more, shares).p < 1e-3 and of_differences(more, shares).std > 5e-4
    small = estimate([40.0, 40.0 + 1e-6, 40.0 - 1e-6])  # not rounding: an image more or less of a large set
    assert (small.std, small.note) == (pytest.approx(1e-6, rel=1e-6), None)


def test_seeds_at_the_ends():
    assert seeds_needed(1e6, 0.6) == 3 and seeds_needed(1e-9, 0.6) is None
    assert Spread(1.0).interval() is None and pooled([[1.0], []]) is None
    assert holm([]) == []


def test_rounding_errors_of_large_values_are_no_spread():
    """Equal differences of values a million times as large: their spread is rounding, relative to the values."""
    values, baseline = (_by_seed([base + step for base in (1e6, 2e6, 3e6)]) for step in (0.1, 0.0))
    result = paired(values, baseline)
    assert (result.note, result.n) == (NO_SPREAD, (3, 3)) and result.mean == pytest.approx(0.1)

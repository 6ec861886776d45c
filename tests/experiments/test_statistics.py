"""Intervals, tests, corrections and power against published examples, scipy's own formulas, and simulation."""

import math

import numpy as np
import pytest
from scipy import stats

from mmlape.errors import ConfigError
from mmlape.experiments.statistics import (
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

# Student's sleep data, as R ships it: extra hours of sleep of ten patients, with two drugs.
FIRST = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
SECOND = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]


def _by_seed(values):
    return dict(enumerate(values))


def test_welch_is_rs_t_test_of_the_sleep_data():
    """R prints for t.test(extra ~ group, sleep): -3.3654832 0.2054832, p-value = 0.07939."""
    result = welch(FIRST, SECOND)
    assert result.mean == pytest.approx(-1.58)
    assert (result.low, result.high) == pytest.approx((-3.3654832, 0.2054832), abs=5e-8)
    assert result.p == pytest.approx(0.07939, abs=5e-6)
    assert result.n == (10, 10)


def test_paired_is_rs_paired_t_test_of_the_sleep_data():
    """R prints for the paired test: -2.4598858 -0.7001142, p-value = 0.002833."""
    result = paired(_by_seed(FIRST), _by_seed(SECOND))
    assert (result.low, result.high) == pytest.approx((-2.4598858, -0.7001142), abs=5e-8)
    assert result.p == pytest.approx(0.002833, abs=5e-7)


def test_one_arms_interval_is_the_tables_quantile_times_the_standard_error():
    values = [36.1, 36.9, 36.4, 37.2, 36.0]
    result = estimate(values)
    half = 2.7764 * np.std(values, ddof=1) / math.sqrt(5)  # Student's t, 4 degrees of freedom, 97.5 %: any table
    assert (result.low, result.high) == pytest.approx((np.mean(values) - half, np.mean(values) + half), abs=1e-4)
    assert (result.n, result.note) == (5, None)
    assert result.std == pytest.approx(np.std(values, ddof=1), rel=1e-12)


@pytest.mark.parametrize('sizes', [(3, 3), (3, 5), (5, 4), (12, 3)])
def test_random_arms_agree_with_scipy(sizes):
    random = np.random.default_rng(sum(sizes))
    first, second = (random.normal(40, scale, n) for scale, n in zip((0.3, 1.5), sizes))
    result, oracle = welch(first, second), stats.ttest_ind(first, second, equal_var=False)
    interval = oracle.confidence_interval(0.95)
    assert (result.low, result.high, result.p) == pytest.approx((*interval, oracle.pvalue), rel=1e-10)
    common = min(sizes)
    oracle = stats.ttest_rel(first[:common], second[:common])
    result = paired(_by_seed(first), _by_seed(second))
    assert (result.low, result.high) == pytest.approx(tuple(oracle.confidence_interval(0.95)), rel=1e-10)
    assert result.p == pytest.approx(oracle.pvalue, rel=1e-10)
    assert result.n == (common, common)


def test_differences_turn_round_and_do_not_feel_a_shift():
    there, back = welch(FIRST, SECOND), welch(SECOND, FIRST)
    assert (there.low, there.high, there.p) == pytest.approx((-back.high, -back.low, back.p))
    shifted = welch(np.add(FIRST, 40), np.add(SECOND, 40))
    assert (shifted.low, shifted.high, shifted.p) == pytest.approx((there.low, there.high, there.p), rel=1e-9)
    scaled = paired(_by_seed(np.multiply(FIRST, 100)), _by_seed(np.multiply(SECOND, 100)))
    whole = paired(_by_seed(FIRST), _by_seed(SECOND))
    assert (scaled.low / 100, scaled.high / 100, scaled.p) == pytest.approx((whole.low, whole.high, whole.p))


def test_pairs_are_made_by_the_seed_and_not_by_the_place():
    first = {121: 1.0, 122: 2.0, 123: 4.0, 125: 9.0}
    second = {125: 8.0, 123: 2.5, 122: 1.5, 121: 0.25, 124: 100.0}
    result = paired(first, second)
    assert result.n == (4, 4)
    assert result.mean == pytest.approx(np.mean([0.75, 0.5, 1.5, 1.0]))
    assert result.low > 0


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


def test_holm_steps_down_and_leaves_out_what_has_no_p():
    """By hand: sorted p times 4, 3, 2, 1, never decreasing, at most 1."""
    family = [Difference(0.0, (3, 3), p=p) for p in (0.01, 0.04, None, 0.03, 0.005)]
    corrected = [one.holm for one in holm(family)]
    assert corrected == pytest.approx([0.03, 0.06, None, 0.06, 0.02])
    assert [one.holm for one in holm([Difference(0.0, (3, 3), p=p) for p in (0.7, 0.6)])] == [1.0, 1.0]
    assert holm([]) == [] and holm(family[2:3]) == family[2:3]


def test_intervals_cover_the_truth_in_95_of_100_experiments():
    random = np.random.default_rng(7)
    trials, hits = 2000, np.zeros(2)
    for _ in range(trials):
        first, second = random.normal(40, 1, 4), random.normal(41, 0.2, 5)
        alone, difference = estimate(first), welch(first, second)
        hits += alone.low < 40 < alone.high, difference.low < -1 < difference.high
    assert hits / trials == pytest.approx([0.95, 0.95], abs=0.02)


def test_power_is_rs_power_t_test():
    """R's help page: power.t.test(n = 20, delta = 1, sd = 1): 0.8689528; (power = .90, delta = 1): n = 22.02110."""
    assert power(1, 1, 20) == pytest.approx(0.8689528, abs=1e-6)
    assert seeds_needed(1, 1, 0.9) == 23


@pytest.mark.parametrize(('difference', 'seeds', 'pairs'), [(1.4, 4, False), (0.8, 10, False), (0.8, 7, True)])
def test_power_is_what_a_simulation_finds(difference, seeds, pairs):
    random = np.random.default_rng(seeds)
    std, trials = 0.6, 20_000
    if pairs:
        p = stats.ttest_1samp(random.normal(difference, std, (seeds, trials)), 0).pvalue
    else:
        first, second = (random.normal(mean, std, (seeds, trials)) for mean in (difference, 0))
        p = stats.ttest_ind(first, second).pvalue
    assert power(difference, std, seeds, pairs) == pytest.approx((p < 0.05).mean(), abs=0.01)


@pytest.mark.parametrize('pairs', [False, True])
def test_the_seeds_needed_are_the_least_that_do(pairs):
    previous = 10**9
    for difference in (0.05, 0.4, 0.8, 1.4, 2.0):
        needed = seeds_needed(difference, 0.6, 0.8, pairs)
        assert power(difference, 0.6, needed, pairs) >= 0.8
        if needed > 3:
            assert power(difference, 0.6, needed - 1, pairs) < 0.8
        assert needed <= previous
        previous = needed
    assert seeds_needed(0.4, 0.6) == seeds_needed(-0.4, 0.6) == 37
    assert seeds_needed(1e6, 0.6, paired=pairs) == 3
    assert seeds_needed(1e-9, 0.6, paired=pairs) is None


def test_a_pilots_deviation_has_the_chi_square_interval_of_the_tables():
    """Chi-square with 4 degrees of freedom: 2.5 % 0.4844, 97.5 % 11.1433."""
    low, high = Spread(1.0, 4).interval()
    assert (low, high) == pytest.approx((math.sqrt(4 / 11.1433), math.sqrt(4 / 0.4844)), rel=1e-4)
    assert Spread(1.0).interval() is None


def test_the_pooled_deviation_weighs_arms_by_their_degrees_of_freedom():
    spread = pooled([[1.0, 3.0], [10.0, 10.0, 13.0, 11.0], [5.0]])
    assert spread.freedom == 4
    assert spread.std == pytest.approx(math.sqrt((2.0 + 6.0) / 4))
    assert pooled([[1.0], []]) is None
    # A seed's luck that both arms share is no spread of their differences.
    luck = np.array([0.0, 2.0, -1.0, 5.0])
    own = np.array([0.1, -0.1, 0.1, -0.1])
    assert of_differences(_by_seed(luck + own), _by_seed(luck)).std == pytest.approx(np.std(own, ddof=1))


@pytest.mark.parametrize(
    ('arguments', 'words'),
    [
        ((0, 0.6), 'difference of 0'),
        ((float('nan'), 0.6), 'difference of nan'),
        ((0.4, 0.0), 'standard deviation of 0'),
        ((0.4, 0.6, 1.0), 'power of 1.0'),
        ((0.4, 0.6, 0.01), 'power of 0.01'),
    ],
)
def test_what_cannot_be_asked_is_said(arguments, words):
    with pytest.raises(ConfigError, match=words):
        seeds_needed(*arguments)


def test_a_difference_without_interval_still_says_of_how_many_runs():
    assert paired({1: 1.0, 2: 3.0}, {2: 1.0, 3: 5.0}) == Difference(2.0, (1, 1), note=TOO_FEW)
    assert paired({1: 1.0}, {2: 2.0}) == Difference(None, (0, 0), note=TOO_FEW)


def test_rounding_errors_of_large_values_are_no_spread():
    """Equal differences of values a million times as large: their spread is rounding, relative to the values."""
    values, baseline = (_by_seed([base + step for base in (1e6, 2e6, 3e6)]) for step in (0.1, 0.0))
    result = paired(values, baseline)
    assert (result.note, result.n) == (NO_SPREAD, (3, 3)) and result.mean == pytest.approx(0.1)

"""The seeds that a difference needs: pilots paired by their seeds, and the numbers of scipy's t distributions."""

import numpy as np
import pytest
from scipy import stats
from synthetic import write_run

from mmlape.errors import ConfigError, DataError
from mmlape.lab.experiments.sample_size import given_spread, pilot_spread, sample_size_table
from mmlape.lab.experiments.sequential import SequentialPlan, expected_seeds
from mmlape.lab.experiments.statistics import Spread, of_differences
from mmlape.tables import rows_of

FIRST = {1: 40.0, 2: 47.0, 3: 41.5, 4: 44.0}
SECOND = {2: 45.0, 3: 40.5, 4: 41.0, 5: 60.0}  # 2.0, 1.0 and 3.0 less at the seeds in common


def least(difference, std, paired, wanted):
    """The definition: the first n from 3 on whose non-central t is outside the 5 % bounds often enough."""
    for n in range(3, 10_000):
        freedom = n - 1 if paired else 2 * n - 2
        shift = difference / std * np.sqrt(n if paired else n / 2)
        bound = stats.t.ppf(0.975, freedom)
        if stats.nct.sf(bound, freedom, shift) + stats.nct.cdf(-bound, freedom, shift) >= wanted:
            return n
    return None


@pytest.mark.parametrize('paired', [False, True])
@pytest.mark.parametrize('wanted', [0.8, 0.9])
def test_the_table_has_the_least_numbers_of_its_test(paired, wanted):
    spread = Spread(0.9, 4)
    table = sample_size_table(spread, [0.7, 1.3], wanted, paired)
    stds = (0.9, *spread.interval())
    for row, difference in zip(rows_of(table), (0.7, 1.3), strict=True):
        assert row[:4] == (f'{difference:g}', *(least(difference, std, paired, wanted) for std in stds))
        if not paired:
            seeds, share = expected_seeds(SequentialPlan(difference), difference, 0.9)
            assert row[4:] == (f'{seeds:.1f} ({share:.0%})',)
    assert list(table.columns)[:3] == [f'std {std:.2f}' for std in stds] and stds[1] < stds[0] < stds[2]


def test_a_given_deviation_of_n_seeds_has_n_minus_1_degrees_of_freedom():
    assert given_spread(0.6, 5) == Spread(0.6, 4) and given_spread(0.6) == Spread(0.6, None)
    low, high = given_spread(0.6, 5).interval()
    assert (low, high) == pytest.approx(0.6 * np.sqrt(4 / stats.chi2.ppf([0.975, 0.025], 4)))
    assert len(sample_size_table(given_spread(0.6), [1.0]).columns) == 2, 'no interval of a spread that is known'
    assert given_spread(0.6, 2).freedom == 1
    with pytest.raises(ConfigError, match='--pilot-seeds 1'):
        given_spread(0.6, 1)


def test_differences_are_of_the_same_seed():
    assert of_differences(FIRST, SECOND) == Spread(pytest.approx(1.0), 2)
    assert of_differences(FIRST, dict(reversed(SECOND.items()))) == Spread(pytest.approx(1.0), 2)
    assert of_differences(FIRST, {4: 1.0, 9: 2.0}) is None


def test_a_pilots_spread_is_of_the_last_evaluation_in_points(tmp_path):
    """Best values, unfinished runs and arms without the metric are not in it."""
    for name, values in (('a', FIRST), ('b', SECOND)):
        for seed, value in values.items():
            write_run(tmp_path / name, seed, {'coco/bbox_mAP': value / 100}, 0.0 + seed, key='coco/bbox_mAP')
    write_run(tmp_path / 'a', 6, {'coco/bbox_mAP': 9.0}, state='failed')
    write_run(tmp_path / 'c', 1, 40.0)
    write_run(tmp_path / 'c', 2, 41.0)
    arms = ['a', 'b']
    spread, source = pilot_spread(tmp_path, arms, paired=True)
    assert (spread.std, spread.freedom) == (pytest.approx(1.0), 2)
    assert source == 'box AP of the last evaluation of a, b'
    spread, _ = pilot_spread(tmp_path, arms)
    parts = [np.var(list(values.values()), ddof=1) for values in (FIRST, SECOND)]
    assert (spread.std, spread.freedom) == (pytest.approx(np.sqrt(np.mean(parts))), 6)
    assert pilot_spread(tmp_path, metric='coco/bbox_mAP')[0] == spread, 'c has no such metric'
    assert pilot_spread(tmp_path, ['a'])[0] == Spread(pytest.approx(np.std(list(FIRST.values()), ddof=1)), 3)
    with pytest.raises(ConfigError, match='--metric: choose one of coco/bbox_mAP, mIoU'):
        pilot_spread(tmp_path)
    write_run(tmp_path / 'd', 1, 40.0)
    with pytest.raises(DataError, match='the spread needs two finished seeds'):
        pilot_spread(tmp_path, ['d'])

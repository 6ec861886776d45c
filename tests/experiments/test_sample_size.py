"""The seeds that a difference needs: pilots paired by their seeds, and the numbers of scipy's t distributions."""

import numpy as np
import pytest
from synthetic import write_run

from mmlape.errors import ConfigError, DataError
from mmlape.lab.experiments.sample_size import pilot_spread
from mmlape.lab.experiments.statistics import Spread

FIRST = {1: 40.0, 2: 47.0, 3: 41.5, 4: 44.0}
SECOND = {2: 45.0, 3: 40.5, 4: 41.0, 5: 60.0}  # 2.0, 1.0 and 3.0 less at the seeds in common


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

"""Each mini recipe begins as recorded: the losses of twenty steps, and the metrics behind them."""

import json

import golden_losses
import pytest

GOLDEN = json.loads(golden_losses.FILE.read_text(encoding='utf-8'))
SAME, OTHER = 1e-6, 0.05
"""Relative to the value: with the versions and the instructions of the CPU that the file names, and with others."""


@pytest.fixture(scope='module')
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp('golden')
    golden_losses.make_data(folder)
    return folder


def test_every_mini_recipe_has_losses():
    assert GOLDEN['recipes'].keys() == golden_losses.RECIPES.keys()
    runs = [run for seeds in GOLDEN['recipes'].values() for run in seeds.values()]
    assert {len(run['losses']) for run in runs} == {golden_losses.STEPS}


def _cases():
    """Yield the recipes; detectors, which take most of the time, are for releases, but for one."""
    for name in GOLDEN['recipes']:
        is_long = name.endswith('mini-coco') and not name.startswith('mask-rcnn_')
        yield pytest.param(name, marks=[pytest.mark.release] if is_long else [])


@pytest.mark.parametrize('name', _cases())
def test_the_first_losses_of_a_recipe_are_those_recorded(name, data, tmp_path):
    same = golden_losses.machine() == GOLDEN['machine']
    for seed, expected in GOLDEN['recipes'][name].items():
        found = golden_losses.first_losses(name, data, tmp_path / seed, int(seed))
        assert found['losses'] == pytest.approx(expected['losses'], rel=SAME if same else OTHER)
        if same:
            assert found['metrics'] == pytest.approx(expected['metrics'], rel=SAME)

"""Each mini recipe begins as recorded: the losses of its first steps, and on the recorded machine the metrics, too."""

import json

import golden_losses
import pytest

GOLDEN = json.loads(golden_losses.FILE.read_text(encoding='utf-8'))
SAME, OTHER = 1e-6, 0.05
"""Relative to the value: with the versions and the instructions of the CPU that the file names, and with others."""
EARLY = 5
"""How many losses are compared with other instructions: each step multiplies a difference of rounding, and where it
flips a sampled proposal of Mask R-CNN, losses differ by 10 % after ten steps."""


@pytest.fixture(scope='module')
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp('golden')
    golden_losses.make_data(folder)
    return folder


def test_every_mini_recipe_has_losses():
    assert GOLDEN['recipes'].keys() == golden_losses.RECIPES.keys()
    runs = [run for recipe in GOLDEN['recipes'].values() for run in recipe['seeds'].values()]
    assert {len(run['losses']) for run in runs} == {golden_losses.STEPS}


QUICK = ('deit-mini-lape_1xb32-5e_mini-digits', 'segmenter_deit-mini-lape_1xb16-250i_mini-ade')
"""A classifier and a segmentor; the other recipes are for releases."""


def _cases():
    assert set(QUICK) < GOLDEN['recipes'].keys()
    for name in GOLDEN['recipes']:
        yield pytest.param(name, marks=[] if name in QUICK else [pytest.mark.release])


@pytest.mark.parametrize('name', _cases())
def test_the_first_losses_of_a_recipe_are_those_recorded(name, data, tmp_path):
    golden = GOLDEN['recipes'][name]
    same = golden_losses.machine() == golden['machine']
    for seed, expected in golden['seeds'].items():
        found = golden_losses.first_losses(name, data, tmp_path / seed, int(seed))
        count = None if same else EARLY
        assert found['losses'][:count] == pytest.approx(expected['losses'][:count], rel=SAME if same else OTHER)
        if same:
            assert found['metrics'] == pytest.approx(expected['metrics'], rel=SAME)

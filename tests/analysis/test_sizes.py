"""The analysis of the registered study of canvases is of its arms; its page says what the records give."""

import itertools
import json

import numpy as np
import pytest
import sizes
import tiny
from hypothesis import given
from hypothesis import strategies as st
from properties import examples

from mmlape.lab.runs.run import read_arms
from mmlape.lab.studies.study_file import read_study

STUDY = read_study('mmlape::studies/mini-sizes.yml')
PAGE = tiny.ROOT / 'docs/results/sizes.md'


def test_the_analysis_is_of_the_registered_arms_and_seeds():
    assert tuple(arm.name for arm in STUDY.arms) == sizes.ARMS and tuple(STUDY.seeds) == tuple(sizes.SEEDS)


def test_an_interval_is_that_of_all_samples_of_the_seeds():
    """Of four seeds there are 256 samples with replacement, whose means are known."""
    values = [3.0, 4.5, 7.0, 11.0]
    means = np.sort([np.mean(sample) for sample in itertools.product(values, repeat=4)])
    low, high = sizes.interval(values)
    assert np.mean(means < low) <= 0.03 and np.mean(means <= low) >= 0.02
    assert np.mean(means > high) <= 0.03 and np.mean(means >= high) >= 0.02


@examples(max_examples=25)
@given(st.lists(st.floats(-50, 50), min_size=3, max_size=8), st.floats(0.1, 9), st.floats(-9, 9))
def test_an_interval_moves_with_its_values(values, factor, offset):
    low, high = sizes.interval(values)
    assert min(values) - 1e-9 <= low <= high <= max(values) + 1e-9
    moved = sizes.interval([factor * value + offset for value in values])
    assert moved == pytest.approx((factor * low + offset, factor * high + offset), abs=1e-6)


def test_two_seeds_have_no_interval():
    assert np.isnan(sizes.interval([1.0, 2.0])).all()


@pytest.fixture
def records(tmp_path):
    tiny.unpack_records('sizes', tmp_path)
    return tmp_path


def test_the_page_says_what_the_records_give(records, capsys):
    sizes.main([str(records / 'mini-sizes-sweep')])
    answers, page = capsys.readouterr().out.splitlines(), PAGE.read_text().splitlines()
    assert len([line for line in answers if line.startswith('### ')]) == 6
    assert [line for line in answers if line not in page] == []
    windows = json.loads((records / 'mini-sizes-sweep' / 'windows.json').read_text())
    rows = page[page.index('## Not registered: windows of the trained size') :]
    for arm in {name.split('/')[0] for name in windows}:
        of_seeds = [windows[f'{arm}/seed_{seed}'] for seed in sizes.SEEDS]
        means = [f'{np.mean([of_seed[scale]["mIoU"] for of_seed in of_seeds]):.1f}' for scale in of_seeds[0]]
        (row,) = (line for line in rows if line.startswith(f'| {arm} | '))
        assert row.strip('| ').split(' | ')[3:] == (means + ['not run'])[:2]


def test_the_page_of_purposes_has_the_same_means(records):
    values = sizes.read_sweep(records / 'mini-sizes-sweep')
    rows = (tiny.ROOT / 'docs/understand/which-encoding.md').read_text().splitlines()
    ends = [[cell.strip() for cell in line.split('|')][-3:-1] for line in rows if line.count('|') == 7]
    for arm in sizes.ARMS:
        assert [f'{np.mean(values[scale][arm]):.1f}' for scale in (1.0, 2.0)] in ends, arm


def test_the_sweep_starts_from_what_each_run_ended_with(records):
    """On the trained canvas, the last evaluation of each run and the sweep agree."""
    swept, runs = sizes.read_sweep(records / 'mini-sizes-sweep')[1.0], read_arms(records / 'mini-sizes')
    assert set(runs) == set(sizes.ARMS)
    for arm, of_arm in runs.items():
        found = {run.seed: run.last.metrics['mIoU'] for run in of_arm if run.counts}
        assert [found[seed] for seed in sizes.SEEDS] == pytest.approx(swept[arm], abs=0.005), arm
        assert {run.last.step for run in of_arm} == {600}

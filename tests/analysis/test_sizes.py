"""The analysis of the registered study of canvases, on a sweep whose values are known; its page, from its records."""

import itertools
import json

import numpy as np
import pytest
import sizes
import tiny
from hypothesis import given
from hypothesis import strategies as st
from properties import examples
from scipy.stats import ttest_ind

from mmlape.lab.experiments.report.data import report_data
from mmlape.lab.runs.run import read_arms
from mmlape.lab.studies.study_file import read_study
from mmlape.projects.size_sweep.models import Swept
from mmlape.projects.size_sweep.sweep import build_report

STUDY = read_study('mmlape::studies/mini-sizes.yml')
PAGE = tiny.ROOT / 'docs/results/sizes.md'


@pytest.fixture
def sweep(tmp_path):
    """mIoU of each run and scale, written as `size-sweep` does; arms keep less and less."""
    random = np.random.RandomState(0)
    found = {
        f'{arm}/seed_{seed}': {
            str(scale): {'mIoU': (40 + random.randn()) * (1 - 0.02 * place * abs(scale - 1)), 'aAcc': 1.0}
            for scale in sizes.SCALES
        }
        for place, arm in enumerate(sizes.ARMS)
        for seed in sizes.SEEDS
    }
    (tmp_path / 'size_sweep.json').write_text(json.dumps(found))
    return tmp_path, found


def test_the_analysis_is_of_the_registered_arms_and_seeds():
    assert tuple(arm.name for arm in STUDY.arms) == sizes.ARMS and tuple(STUDY.seeds) == tuple(sizes.SEEDS)


def test_each_comparison_is_welchs_corrected_by_holm(sweep):
    """Against scipy's t and Holm's procedure written out."""
    folder, found = sweep
    some = {
        arm: [
            100 * found[f'{arm}/seed_{seed}']['2.0']['mIoU'] / found[f'{arm}/seed_{seed}']['1.0']['mIoU']
            for seed in sizes.SEEDS
        ]
        for arm in sizes.ARMS
    }
    values = sizes.read_sweep(folder)
    family = sizes.against_default(sizes.kept(values, 2.0))
    p = np.array([ttest_ind(some[arm], some['default'], equal_var=False).pvalue for arm in sizes.OTHERS])
    order, least, corrected = np.argsort(p), 0.0, {}
    for rank, place in enumerate(order):
        least = max(least, min(1.0, p[place] * (len(p) - rank)))
        corrected[place] = least
    for place, (arm, one) in enumerate(zip(sizes.OTHERS, family, strict=True)):
        assert one.mean == pytest.approx(np.mean(some[arm]) - np.mean(some['default']))
        assert (one.p, one.holm) == pytest.approx((p[place], corrected[place]))
    assert family[-1].mean < family[0].mean < 0 and family[-1].holm < 0.05


def test_a_report_of_a_sweep_is_read_as_well(sweep, tmp_path_factory):
    """As `size-sweep` writes it now."""
    folder, found = sweep
    models = [Swept(name.partition('/')[0], name, None) for name in found]
    by_scale = {name: {float(scale): one for scale, one in scales.items()} for name, scales in found.items()}
    other = tmp_path_factory.mktemp('report')
    report = build_report(models, by_scale, dict.fromkeys(found, 1.0), 'side of the canvas', other)
    (other / 'report.json').write_text(json.dumps(report_data(report).as_json()))
    assert sizes.read_sweep(other) == sizes.read_sweep(folder)


def test_every_question_is_answered_or_the_run_that_lacks_is_named(sweep, capsys):
    folder, found = sweep
    sizes.main([str(folder)])
    printed = capsys.readouterr().out
    assert printed.count('### ') == 6 and printed.count('| cpe ') == 6
    own = [100.0 * found[f'rope/seed_{seed}']['4.0']['mIoU'] / found[f'rope/seed_{seed}']['1.0']['mIoU']
           for seed in sizes.SEEDS]  # fmt: skip
    assert f'| {np.mean(own):.1f} ' in printed.split('### ')[-1]
    del found['rope/seed_403']['4.0']
    (folder / 'size_sweep.json').write_text(json.dumps(found))
    sizes.main([str(folder)])
    assert capsys.readouterr().out == 'Not answered: rope, seed 403, has no mIoU at 4 times the trained size.\n'


def test_a_run_that_has_learned_nothing_has_no_share_and_is_named(sweep, capsys):
    folder, found = sweep
    sizes.main([str(folder)])
    before = capsys.readouterr().out.split('### ')
    found['rope/seed_403']['1.0']['mIoU'] = 0.0
    (folder / 'size_sweep.json').write_text(json.dumps(found))
    sizes.main([str(folder)])
    after = capsys.readouterr().out.split('### ')
    assert after[-1].endswith('- rope, seed 403: no mIoU on the trained canvas, so no share of it.\n')
    assert after[2] == before[2], 'mIoU at 2 times the size needs no share'
    own = [
        100 * found[f'rope/seed_{seed}']['2.0']['mIoU'] / found[f'rope/seed_{seed}']['1.0']['mIoU']
        for seed in sizes.SEEDS
        if seed != 403
    ]
    default = sizes.kept(sizes.read_sweep(folder), 2.0)['default']
    assert f'| rope | {np.mean(own) - np.mean(default):.1f} |' in after[1]
    for seed in sizes.SEEDS:
        found[f'rope/seed_{seed}']['1.0']['mIoU'] = 0.0
    (folder / 'size_sweep.json').write_text(json.dumps(found))
    sizes.main([str(folder)])
    assert '| rope | - |' in capsys.readouterr().out


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
    ends = [line.split(' | ', 1)[1] for line in rows if line.count('|') == 6]
    for arm in sizes.ARMS:
        means = (f'{np.mean(values[scale][arm]):.1f}' for scale in (1.0, 1.5, 2.0, 4.0))
        assert ' | '.join(means) + ' |' in ends, arm


def test_the_sweep_starts_from_what_each_run_ended_with(records):
    """On the trained canvas, the last evaluation of each run and the sweep agree."""
    swept, runs = sizes.read_sweep(records / 'mini-sizes-sweep')[1.0], read_arms(records / 'mini-sizes')
    assert set(runs) == set(sizes.ARMS)
    for arm, of_arm in runs.items():
        found = {run.seed: run.last.metrics['mIoU'] for run in of_arm if run.counts}
        assert [found[seed] for seed in sizes.SEEDS] == pytest.approx(swept[arm], abs=0.005), arm
        assert {run.last.step for run in of_arm} == {600}

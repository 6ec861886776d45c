"""The report computed again, by pandas and SciPy, from its own `values.csv`: every estimate and every comparison.

Models are interleaved, seeds have gaps, a class is missing in a run and in an arm, and a metric is undefined in one.
"""

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from synthetic import settings, write_log, write_run

from mmlape import page
from mmlape.figures import look
from mmlape.lab.experiments.report import figures
from mmlape.lab.experiments.report.writing import report_work_dir
from mmlape.lab.runs.run import write_order

ARMS = dict(
    small=('deit-small', 'default'),
    tiny_lape=('deit-tiny', 'lape'),
    small_lape=('deit-small', 'lape'),
    tiny=('deit-tiny', 'default'),
    tiny_shared=('deit-tiny', 'shared'),
)
"""Two models, their arms in turns, so that neither neighbours nor the first are baselines."""
BASELINES = dict(tiny_lape='tiny', tiny_shared='tiny', small_lape='small')
SEEDS = dict(
    small=(5, 1, 3, 2), tiny_lape=(1, 2, 3), small_lape=(3, 1, 4, 5, 7), tiny=(2, 3, 4, 1), tiny_shared=(8, 9)
)
WHERE = ['arm', 'which', 'metric', 'class']


@pytest.fixture(scope='module')
def work_dir(tmp_path_factory):
    folder, random = tmp_path_factory.mktemp('arms'), np.random.default_rng(3)
    for place, (arm, (arch, joining)) in enumerate(ARMS.items()):
        for seed in SEEDS[arm]:
            last, best = (dict(mIoU=random.normal(40 + place, 1), aAcc=random.normal(80, 2)) for _ in range(2))
            classes = {name: random.normal(50 + 3 * place, 4) for name in ('sky', 'tree', 'lamp', 'cat')}
            if arm == 'small_lape' and seed == 4:
                last['aAcc'] = None
            if arm == 'small_lape' and seed == 5:
                classes.pop('tree')
            if arm == 'tiny':
                classes.pop('lamp')
            chosen = settings(joining, arch=arch)
            run = write_run(folder / arm, seed, last, best, chosen=chosen, per_class=dict(IoU=classes))
            write_log(run, [dict(loss=1.0, iter=1, step=1), dict(mIoU=last['mIoU'], step=1)])
    write_order(folder, list(ARMS))
    return folder


@pytest.fixture(scope='module')
def tables(work_dir, tmp_path_factory):
    """The three tables as pandas reads them."""
    folder = tmp_path_factory.mktemp('report')
    report_work_dir(work_dir, folder)
    read = {name: pd.read_csv(folder / f'{name}.csv') for name in ('values', 'estimates', 'comparisons')}
    for frame in read.values():
        frame['class'] = frame['class'].fillna('')
    return read


def numbers(row, names):
    """Return the numbers of a row, NaN where it has none."""
    return [float(row[name]) for name in names]


def test_values_are_those_of_the_records(work_dir, tables):
    values = tables['values']
    assert list(values.arm.drop_duplicates()) == list(ARMS)
    wanted = []
    for arm in ARMS:
        for seed in SEEDS[arm]:
            record = pd.read_json(work_dir / arm / f'seed_{seed}' / 'run.json', typ='series')
            for which in ('last', 'best'):
                entry = getattr(record, which)
                rows = [(metric, '', value) for metric, value in entry['metrics'].items()]
                rows += [('IoU', name, value) for name, value in entry['per_class']['IoU'].items()]
                wanted += [(arm, seed, which, entry['step'], *row) for row in rows if row[-1] is not None]
    found = values[['arm', 'seed', 'which', 'step', 'metric', 'class', 'value']].itertuples(index=False, name=None)
    assert sorted(found) == sorted(wanted)


def test_estimates_are_those_of_the_values(tables):
    estimates = tables['estimates'].set_index(WHERE)
    groups = tables['values'].groupby(WHERE).value
    assert estimates.index.is_unique and set(estimates.index) == set(groups.groups)
    for where, values in groups:
        n = len(values)
        half = stats.t.ppf(0.975, n - 1) * values.sem() if n > 2 else np.nan
        expected = [values.mean(), values.std(ddof=1), n, values.mean() - half, values.mean() + half]
        found = numbers(estimates.loc[where], ('mean', 'std', 'n', 'low', 'high'))
        assert found == pytest.approx(expected, rel=1e-9, nan_ok=True), where


def expected_of(mine, theirs, test):
    """Return both n, mean, interval and p of a test of two arms' values by seed."""
    if test == 'paired':
        gains = (mine - theirs).dropna()
        sizes, mean, ends = (len(gains),) * 2, gains.mean(), stats.ttest_1samp(gains, 0) if len(gains) > 2 else None
    else:
        sizes, mean = (len(mine), len(theirs)), mine.mean() - theirs.mean()
        ends = stats.ttest_ind(mine, theirs, equal_var=False) if min(sizes) > 2 else None
    between = (*ends.confidence_interval(0.95), ends.pvalue) if ends else (np.nan,) * 3
    return [*sizes, mean, *between]


def test_comparisons_are_those_of_the_values(tables):
    """Each arm with the default PE of its own model, over metrics, and over the classes that both have."""
    comparisons, values = tables['comparisons'], tables['values'].set_index([*WHERE, 'seed']).value.sort_index()
    known = {where[:-1] for where in values.index}
    wanted = {
        (arm, BASELINES[arm], which, metric, name, test)
        for arm, which, metric, name in known
        if arm in BASELINES and (BASELINES[arm], which, metric, name) in known
        if (metric == 'mIoU' and not name) or (metric == 'IoU' and which == 'last')
        for test in ('welch', 'paired')
    }
    keys = ['arm', 'baseline', 'which', 'metric', 'class', 'test']
    assert not comparisons.duplicated(keys).any()
    assert set(comparisons[keys].itertuples(index=False, name=None)) == wanted
    for _, row in comparisons.iterrows():
        mine, theirs = (values[row[arm], row.which, row.metric, row['class']] for arm in ('arm', 'baseline'))
        found = numbers(row, ('n_arm', 'n_baseline', 'mean', 'low', 'high', 'p'))
        assert found == pytest.approx(expected_of(mine, theirs, row.test), rel=1e-9, nan_ok=True), tuple(row)


def test_holms_families_are_corrected(tables):
    """The metrics of all arms at one evaluation are a family; so are the classes of a pair."""
    comparisons = tables['comparisons'].copy()
    comparisons['pair'] = comparisons.arm.where(comparisons['class'] != '', '')
    for family, rows in comparisons.groupby(['pair', 'which', 'metric', 'test']):
        rows = rows.dropna(subset='p').sort_values('p')
        corrected = (rows.p * np.arange(len(rows), 0, -1)).cummax().clip(upper=1)
        assert rows.holm.tolist() == pytest.approx(corrected.tolist(), rel=1e-9), family
    assert comparisons.holm.isna().equals(comparisons.p.isna())


def test_an_arm_has_its_colour_in_all_figures(work_dir, tmp_path, monkeypatch):
    """That of its place in the report, baselines thick; gains and losses of classes have a colour each."""
    drawn = {}
    monkeypatch.setattr(figures, 'save_figure', lambda figure, path: drawn.setdefault(path.stem, figure) and path)
    monkeypatch.setattr(page, 'data_uri', lambda path: '')
    report, _ = report_work_dir(work_dir, tmp_path)
    assert set(drawn) == {'differences', 'curves-0', 'classes-0', 'classes-1', 'classes-2'}
    looks = [look(place, arm in BASELINES.values()) for place, arm in enumerate(ARMS)]
    curves = drawn['curves-0']
    for axes in curves.axes:
        lines = [line for line in axes.lines if len(line.get_xdata())]
        assert [(line.get_color(), line.get_lw()) for line in lines] == [(one['color'], one['lw']) for one in looks]
    handles = curves.legends[0].legend_handles
    assert [line.get_label().split(' (')[0] for line in handles] == list(ARMS)
    assert [line.get_color() for line in handles] == [one['color'] for one in looks]
    for number, (arm, group) in enumerate(pd.DataFrame(map(vars, report.classes)).groupby('arm', sort=False)):
        (axes,) = drawn[f'classes-{number}'].axes
        gains = [compared.mean for compared in group.welch][::-1]
        assert gains == sorted(gains), arm
        assert [bar.get_width() for bar in axes.patches] == pytest.approx(gains)
        colours = {gain > 0: bar.get_facecolor() for gain, bar in zip(gains, axes.patches)}
        assert all(bar.get_facecolor() == colours[gain > 0] for gain, bar in zip(gains, axes.patches))
        assert [label.get_text() for label in axes.get_yticklabels()] == list(group.name)[::-1]

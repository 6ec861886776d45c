"""From the records of runs to each average and test in the tables of their report, computed a second time by scipy."""

import csv
import json
import re
from statistics import fmean, stdev

import numpy as np
import pytest
from scipy import stats
from synthetic import settings, write_run
from test_statistics import holm_by_definition
from told import keep_figures

import mmlape.lab.experiments.report  # noqa: F401  (imported before its figures are described)
from mmlape.cli import main

ARMS, SEEDS, CLASSES = {'lape': 'lape', 'plain': 'default'}, (4, 5, 6), ('sky', 'lamp', 'tree')


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    """The report of two arms whose scores are drawn at random."""
    folder, random = tmp_path_factory.mktemp('columns'), np.random.default_rng(0)
    for arm, joining in ARMS.items():
        for seed in SEEDS:
            entries = [dict(zip(('mIoU', 'aAcc', 'mAcc'), random.uniform(40, 60, 3).tolist())) for _ in range(2)]
            classes = dict(IoU=dict(zip(CLASSES, random.uniform(20, 80, 3).tolist())))
            write_run(folder / arm, seed, *entries, chosen=settings(joining), per_class=classes)
    with pytest.MonkeyPatch.context() as patched:
        keep_figures(patched)
        assert main(['report', str(folder)]) == 0
    return folder


@pytest.fixture(scope='module')
def records(folder):
    return {arm: [json.loads((folder / arm / f'seed_{seed}/run.json').read_text()) for seed in SEEDS] for arm in ARMS}


def values(runs, which, metric, name=None):
    entries = [run[which] for run in runs]
    return [entry['metrics'][metric] if name is None else entry['per_class'][metric][name] for entry in entries]


def averages(found):
    """The two cells of a mean."""
    mean, half = fmean(found), stats.t.ppf(0.975, 2) * stdev(found) / 3**0.5
    return f'{mean:.2f} ± {stdev(found):.2f} (3)', f'{mean - half:.2f} to {mean + half:.2f}'


def both(runs, metric):
    return [*averages(values(runs, 'last', metric)), *averages(values(runs, 'best', metric))]


def compared(family):
    """The cells of a family ``{row: (values, baseline's values)}``, of both tests."""
    tests = (lambda *pair: stats.ttest_ind(*pair, equal_var=False), stats.ttest_rel)
    found = {row: [test(*pair) for test in tests] for row, pair in family.items()}
    corrected = [holm_by_definition([results[test].pvalue for results in found.values()]) for test in (0, 1)]
    for number, (row, results) in enumerate(found.items()):
        cells = []
        for test, result in enumerate(results):
            low, high = result.confidence_interval(0.95)
            cells += [f'{np.subtract(*map(fmean, family[row])):+.2f}' + ' (3)' * test, f'{low:+.2f} to {high:+.2f}']
            cells += ['< 0.001' if p < 0.001 else f'{p:.3f}' for p in (result.pvalue, corrected[test][number])]
        yield [row, *cells]


def tables_of(text):
    """The rows of the tables of the Markdown, in their order, without their heads."""
    text = re.sub(r'\\(.)', r'\1', text)
    for block in re.findall(r'(?:^\|.*\n)+', text, re.MULTILINE):
        yield [line.strip('| ').split(' | ') for line in block.splitlines()[2:]]


def test_every_average_and_test_of_the_page(folder, records):
    found = list(tables_of((folder / 'report' / 'report.md').read_text()))
    results, of_last, of_best, classes, *_ = found
    for row, runs in zip(results, records.values(), strict=True):
        assert row[2:4] == ['mIoU', '4 to 6'] and row[-4:] == both(runs, 'mIoU')
    for table, which in ((of_last, 'last'), (of_best, 'best')):
        (cells,) = compared({'mIoU': [values(records[arm], which, 'mIoU') for arm in ('lape', 'plain')]})
        assert table == [['lape − plain', *cells]]
    family = {name: [values(records[arm], 'last', 'IoU', name) for arm in ('lape', 'plain')] for name in CLASSES}
    gain = {name: fmean(mine) - fmean(theirs) for name, (mine, theirs) in family.items()}
    assert classes == sorted(compared(family), key=lambda row: -gain[row[0]])
    for table, runs in zip(found[-2:], records.values(), strict=True):
        assert table == [[metric, *both(runs, metric)] for metric in ('mIoU', 'aAcc', 'mAcc')]


def test_json_and_csv_hold_what_the_runs_recorded(folder, records):
    found = json.loads((folder / 'report' / 'report.json').read_text())
    rows = []
    for arm, runs in records.items():
        for which in ('last', 'best'):
            rows += [(arm, which, metric, '', values(runs, which, metric)) for metric in ('mIoU', 'aAcc', 'mAcc')]
            rows += [(arm, which, 'IoU', name, values(runs, which, 'IoU', name)) for name in CLASSES]
    for arm, which, metric, name, numbers in rows:
        part = found['arms'][arm][which]
        average = part['per_class'][metric][name] if name else part['metrics'][metric]
        half = stats.t.ppf(0.975, 2) * stdev(numbers) / 3**0.5
        expected = [fmean(numbers), stdev(numbers), 3, fmean(numbers) - half, fmean(numbers) + half]
        assert [average[key] for key in ('mean', 'std', 'n', 'low', 'high')] == pytest.approx(expected)
    with open(folder / 'report' / 'values.csv', newline='') as file:
        written = [(*row[:-1], float(row[-1])) for row in list(csv.reader(file))[1:]]
    steps = dict(last='300', best='200')
    assert written == [
        (arm, str(seed), which, steps[which], metric, name, pytest.approx(value))
        for arm, which, metric, name, numbers in rows
        for seed, value in zip(SEEDS, numbers, strict=True)
    ]

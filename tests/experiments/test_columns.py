"""From real runs, three seeds of two arms, to each column of each table of their report.

Each cell is computed a second time: from the files of the runs as they are, with scipy alone.
"""

import csv
import hashlib
import html
import json
import re
from statistics import fmean, stdev

import numpy as np
import pytest
import tiny
from scipy import stats

pytestmark = pytest.mark.release  # `make test` has the tables of recorded values, in test_told_reports.py
ARMS, SEEDS = {'plain': 'As it is', 'lape': 'With LaPE'}, (4, 5, 6)
EXTRA = """
train_cfg.update(max_iters=4, val_interval=2)
default_hooks['checkpoint'].update(interval=4)
"""
GRID = """
title: Two
base: tiny.py
seeds: [4, 5, 6]
arms:
  plain: {title: As it is, overrides: {model.backbone.pe_joining: default}}
  lape: {title: With LaPE}
"""


@pytest.fixture(scope='module')
def work_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp('columns')
    tiny.write_config(folder, tiny.write_data(folder / 'data', train=4, val=2, side=40), EXTRA)
    (folder / 'grid.yml').write_text(GRID)
    tiny.run(*tiny.MMLAPE, 'multi-seed', 'grid.yml', '--work-dir', 'work', cwd=folder)
    tiny.run(*tiny.MMLAPE, 'report', 'work', cwd=folder)
    return folder / 'work'


@pytest.fixture(scope='module')
def records(work_dir):
    found = {arm: [tiny.record(work_dir / arm / f'seed_{seed}') for seed in SEEDS] for arm in ARMS}
    for arm, runs in found.items():
        assert {(run['arm'], run['study']) for run in runs} == {(arm, f'grid.yml:{arm}')}
    return found


def values(runs, which, metric, name=None):
    entries = [run[which] for run in runs]
    return [entry['metrics'][metric] if name is None else entry['per_class'][metric][name] for entry in entries]


def averages(found):
    """The two cells of a mean."""
    mean, half = fmean(found), stats.t.ppf(0.975, 2) * stdev(found) / 3**0.5
    return f'{mean:.2f} ± {stdev(found):.2f} (3)', f'{mean - half:.2f} to {mean + half:.2f}'


def both(runs, metric):
    return (*averages(values(runs, 'last', metric)), *averages(values(runs, 'best', metric)))


def of_both_tests(mine, theirs):
    """Difference, interval and p of both tests."""
    for found in (stats.ttest_ind(mine, theirs, equal_var=False), stats.ttest_rel(mine, theirs)):
        yield fmean(mine) - fmean(theirs), *found.confidence_interval(0.95), found.pvalue


def holm(p):
    """Holm's correction, as the paper has it."""
    corrected, largest = dict.fromkeys(p, 0.0), 0.0
    for rank, name in enumerate(sorted(p, key=p.get)):
        largest = max(largest, min(1.0, (len(p) - rank) * p[name]))
        corrected[name] = largest
    return corrected


def compared(family):
    """The cells of a family ``{row: (values, baseline's values)}``."""
    found = {row: list(of_both_tests(*pair)) for row, pair in family.items()}
    corrected = [holm({row: results[test][3] for row, results in found.items()}) for test in (0, 1)]
    for row, results in found.items():
        cells = []
        for test, (mean, low, high, p) in enumerate(results):
            cells += [f'{mean:+.2f}' + ' (3)' * test, f'{low:+.2f} to {high:+.2f}']
            cells += ['< 0.001' if one < 0.001 else f'{one:.3f}' for one in (p, corrected[test][row])]
        yield row, cells


def tables_of(text):
    """The tables of the Markdown, each as a list of rows, in their order."""
    text = re.sub(r'\\(.)', r'\1', text)
    for block in re.findall(r'(?:^\|.*\n)+', text, re.MULTILINE):
        rows = [line.strip('| ').split(' | ') for line in block.splitlines()]
        yield [rows[0], *rows[2:]]


def expected_tables(records):
    """All tables of the report, as a page shows them."""
    heads = ['last: mean ± std (n)', 'last: 95% interval', 'best: mean ± std (n)', 'best: 95% interval']
    papers = {arm: runs[0]['identity']['paper'] for arm, runs in records.items()}
    yield [['arm', 'title', 'model', 'metric', 'seeds', *heads]] + [
        [arm + ', baseline' * (arm == 'plain'), ARMS[arm], f'{papers[arm]["name"]}, {papers[arm]["method"]}', 'mIoU',
         '4 to 6', *both(runs, 'mIoU')]
        for arm, runs in records.items()
    ]  # fmt: skip
    tests = ['difference', "Welch's 95% interval", 'p', "Holm's p", 'paired difference (seeds)', 'paired 95% interval',
             'paired p', "paired Holm's p"]  # fmt: skip
    for which in ('last', 'best'):
        pair = [values(records[arm], which, 'mIoU') for arm in ('lape', 'plain')]
        ((_, cells),) = compared({'mIoU': pair})
        yield [['arm − baseline', 'metric', *tests], ['lape − plain', 'mIoU', *cells]]
    family = {name: [values(records[arm], 'last', 'IoU', name) for arm in ('lape', 'plain')] for name in tiny.CLASSES}
    largest = sorted(compared(family), key=lambda row: -np.subtract(*map(fmean, family[row[0]])))
    yield [['class', *tests], *([name, *cells] for name, cells in largest)]
    costs = {arm: [run['cost'] for run in runs] for arm, runs in records.items()}
    kind = costs['plain'][0]['memory_kind']
    rows = []
    for arm, found in costs.items():
        means = {key: fmean(cost[key] for cost in found) for key in ('peak_memory_mib', 'seconds_per_iter')}
        seconds = round(fmean(cost['train_seconds'] for cost in found))
        hours = [cost['gpu_hours'] for cost in found if cost['gpu_hours'] is not None]
        rows.append([
            arm, f'{found[0]["parameters"] / 1e6:.3f}', '–', f'{means["peak_memory_mib"]:,.0f}',
            f'{means["seconds_per_iter"]:.3f}', f'0:{seconds // 60:02}:{seconds % 60:02}',
            f'{sum(hours):.2f}' if hours else '–',
        ])  # fmt: skip
    yield [['arm', 'parameters (M)', 'GFLOPs (one image)', f'peak memory (MiB, {kind})', 's / iteration',
            'a run (h:mm:ss)', 'GPU hours, all runs'], *rows]  # fmt: skip
    rows = []
    for arm, (run, *_) in records.items():
        identity, code = run['identity'], run['identity']['code']
        modules = hashlib.sha256(json.dumps(code['modules'], sort_keys=True).encode()).hexdigest()
        data = hashlib.sha256(json.dumps(identity['data'], sort_keys=True).encode()).hexdigest()[:10]
        commit = f' (commit {code["commit"][:9]})' if code['commit'] else ''
        rows.append([
            arm, f'grid-{arm} {identity["settings_sha256"][:10]}', '4 to 6',
            f'{run["world_size"]} x {run["images_per_process"]} x {run["accumulation"]} = {run["total_batch"]}',
            identity['batch_policy'], 'fp32', '–', data, f'{code["version"]} {modules[:10]}{commit}', run['host'],
            run['device'],
        ])  # fmt: skip
    yield [['arm', 'config', 'seeds', 'total batch', 'batch policy', 'precision', 'starts from', 'data', 'mmlape',
            'host', 'device'], *rows]  # fmt: skip
    for runs in records.values():
        yield [['metric', *heads], *([metric, *both(runs, metric)] for metric in ('aAcc', 'mIoU', 'mAcc'))]


def test_every_column_of_markdown_and_page(work_dir, records):
    expected = list(expected_tables(records))
    assert list(tables_of((work_dir / 'report' / 'report.md').read_text())) == expected
    page = (work_dir / 'report' / 'index.html').read_text()
    cells = [html.unescape(re.sub('<[^>]*>', '', cell)) for cell in re.findall(r'<t[dh][^>]*>(.*?)</t[dh]>', page)]
    shown = [(cell, above) for table in expected for row, before in zip(table, [[''] * 99, *table])
             for cell, above in zip(row, before)]  # fmt: skip
    assert len(cells) == len(shown)  # a head that repeats the row's above it is left out
    assert all(one == cell or (one == '' and cell == above) for one, (cell, above) in zip(cells, shown))


def test_json_and_csv_hold_what_the_runs_recorded(work_dir, records):
    found = json.loads((work_dir / 'report' / 'report.json').read_text())
    assert found['title'] == 'Two' and list(found['arms']) == list(ARMS)
    rows = []
    for arm, runs in records.items():
        entry, (first, *_) = found['arms'][arm], runs
        assert entry['cost']['runs'] == {str(seed): run['cost'] for seed, run in zip(SEEDS, runs, strict=True)}
        assert (entry['identity'], entry['model']) == (first['identity'], first['identity']['paper'])
        assert (entry['title'], entry['seeds'], entry['key']) == (ARMS[arm], list(SEEDS), first['best']['key'])
        for which in ('last', 'best'):
            for metric in first[which]['metrics']:
                rows += [(arm, which, metric, '', values(runs, which, metric), runs)]
            for metric, classes in first[which]['per_class'].items():
                rows += [(arm, which, metric, name, values(runs, which, metric, name), runs) for name in classes]
    for arm, which, metric, name, numbers, _ in rows:
        part = found['arms'][arm][which]
        average = part['per_class'][metric][name] if name else part['metrics'][metric]
        half = stats.t.ppf(0.975, 2) * stdev(numbers) / 3**0.5
        expected = [fmean(numbers), stdev(numbers), 3, fmean(numbers) - half, fmean(numbers) + half]
        assert [average[key] for key in ('mean', 'std', 'n', 'low', 'high')] == pytest.approx(expected)
    with open(work_dir / 'report' / 'values.csv', newline='') as file:
        written = [(*row[:-1], float(row[-1])) for row in list(csv.reader(file))[1:]]
    assert written == [
        (arm, str(seed), which, str(run[which]['step']), metric, name, pytest.approx(value))
        for arm, which, metric, name, numbers, runs in rows
        for seed, run, value in zip(SEEDS, runs, numbers, strict=True)
    ]

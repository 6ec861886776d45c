"""The report of runs that were trained here: every column of every table holds what the runs have recorded."""

import json
import platform
import re

import numpy as np
import pytest
import tiny
from scipy import stats

from mmlape.lab.engine.config import load_config
from mmlape.lab.engine.trainer import train
from mmlape.lab.experiments.report import tables
from mmlape.lab.experiments.report.writing import report_work_dir
from mmlape.tables import header_of, rows_of

SEEDS = (1, 2, 3)
UNKNOWN = {'GFLOPs (one image)', 'GPU hours, all runs', 'starts from'}
"""What a run on the CPU of a config of its own, from random weights, does not have."""
OFTEN = ['train_cfg.val_interval=3']


def interval_of(values):
    low, high = stats.t.interval(0.95, len(values) - 1, np.mean(values), stats.sem(values))
    return f'{low:.2f} to {high:.2f}'


def test_every_column_is_what_the_runs_have_recorded(tmp_path):
    config = tiny.write_config(tmp_path, tiny.write_data(tmp_path / 'data'))
    records = {}
    for arm, joining in (('plain', 'default'), ('ours', 'shared')):
        for seed in SEEDS:
            folder = tmp_path / 'runs' / arm / f'seed_{seed}'
            train(load_config(config, [*OFTEN, f'model.backbone.pe_joining={joining}']), folder, seed=seed)
            records.setdefault(arm, []).append(json.loads((folder / 'run.json').read_text()))
    report, files = report_work_dir(tmp_path / 'runs')
    frames = {
        'results': tables.results_table(report),
        'last': tables.comparison_table(report, 'last'),
        'cost': tables.cost_table(report),
        'provenance': tables.provenance_table(report),
    }
    rows = {
        name: {row[0].split(',')[0]: dict(zip(header_of(frame), row)) for row in rows_of(frame)}
        for name, frame in frames.items()
    }
    for name, of_arms in rows.items():
        assert list(of_arms) == (['ours − plain'] if name == 'last' else ['ours', 'plain'])
        for row in of_arms.values():
            assert {head for head, cell in row.items() if cell in ('–', '')} <= UNKNOWN, name

    values = {
        which: {arm: [one[which]['metrics']['mIoU'] for one in found] for arm, found in records.items()}
        for which in ('last', 'best')
    }
    for arm, found in records.items():
        first, costs = found[0], [one['cost'] for one in found]
        row = rows['results'][arm]
        for which in values:
            sample = values[which][arm]
            assert row[f'{which}: mean ± std (n)'] == f'{np.mean(sample):.2f} ± {np.std(sample, ddof=1):.2f} (3)'
            assert row[f'{which}: 95% interval'] == interval_of(sample)
        assert row['seeds'] == '1 to 3' and row['metric'] == 'mIoU'
        row = list(rows['cost'][arm].values())
        assert row[1] == f'{costs[0]["parameters"] / 1e6:.3f}' and costs[0]['parameters'] > 1e4
        seconds = np.mean([cost['train_seconds'] for cost in costs])
        hours, minutes, left = (int(part) for part in row[5].split(':'))
        assert abs(3600 * hours + 60 * minutes + left - seconds) <= 1
        row = rows['provenance'][arm]
        assert row['config'] == f'tiny {first["identity"]["settings_sha256"][:10]}'
        assert row['total batch'] == f'1 x 2 x 1 = {first["total_batch"]}' and row['batch policy'] == 'recipe'
        assert (row['precision'], row['host']) == ('fp32', platform.node())

    row = rows['last']['ours − plain']
    mine, theirs = values['last']['ours'], values['last']['plain']
    welch, paired = stats.ttest_ind(mine, theirs, equal_var=False), stats.ttest_rel(mine, theirs)
    assert row['difference'] == f'{np.mean(mine) - np.mean(theirs):+.2f}'
    assert row['paired difference (seeds)'] == f'{np.mean(mine) - np.mean(theirs):+.2f} (3)'
    for head, test in (("Welch's 95% interval", welch), ('paired 95% interval', paired)):
        between = test.confidence_interval(0.95)
        assert row[head] == f'{between.low:+.2f} to {between.high:+.2f}'
    for heads, test in ((('p', "Holm's p"), welch), (('paired p', "paired Holm's p"), paired)):
        assert [float(row[head]) for head in heads] == pytest.approx([test.pvalue] * 2, abs=6e-4)

    mean = f'{np.mean(mine):.2f}'
    texts = {file.name: file.read_text() for file in files}
    for name in ('index.html', 'report.md', 'tables.tex'):
        assert re.search(rf'\b{mean} ', texts[name]), name
    data = json.loads(texts['report.json'])['arms']['ours']['last']['metrics']['mIoU']
    assert data['values'] == dict(zip(map(str, SEEDS), mine)) and data['mean'] == pytest.approx(np.mean(mine))

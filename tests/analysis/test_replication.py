"""The page of the registered study says what the records of its runs give."""

import csv
import json

import pytest
import replication
import tiny

from mmlape.cli import main
from mmlape.lab.runs.run import read_arms
from mmlape.lab.studies.study_file import read_study

PAGE = tiny.ROOT / 'docs/results/fashion-mnist-replication.md'


@pytest.mark.release
def test_the_page_says_what_the_records_give(tmp_path, capsys):
    page, runs = PAGE.read_text().splitlines(), tiny.unpack_records('fashion-mnist-replication', tmp_path)
    replication.main([str(runs)])
    answers = capsys.readouterr().out.splitlines()
    assert len([line for line in answers if line.startswith('### ')]) == 6
    assert [line for line in answers if line not in page] == []

    main(['report', str(runs), '--out', str(tmp_path / 'report')])
    with (tmp_path / 'report' / 'estimates.csv').open() as file:
        rows = [row for row in csv.DictReader(file) if row['which'] == 'last']
    assert len(rows) == len(list(runs.glob('*/seeds.json')))
    for row in rows:
        mean, std, low, high = (f'{float(row[key]):.2f}' for key in ('mean', 'std', 'low', 'high'))
        assert f'| {row["arm"]} | {mean} ± {std} ({row["n"]}) | {low} to {high} |' in page


def test_a_question_waits_for_all_of_its_runs(tmp_path, capsys):
    runs = tiny.unpack_records('fashion-mnist-replication', tmp_path)
    file = runs / 'lape-vit-lite' / 'seed_220' / 'run.json'
    file.write_text(json.dumps(dict(json.loads(file.read_text()), iter=10)))
    replication.main([str(runs)])
    assert 'Not answered: 19 of 20 runs of lape-vit-lite are finished.' in capsys.readouterr().out


def test_the_page_has_the_exploratory_rates_of_their_records(tmp_path):
    arms = read_arms(tiny.unpack_records('fashion-mnist-depth-rates', tmp_path))
    rows = [line.strip('| ').split(' | ')[1:] for line in PAGE.read_text().splitlines()]
    rates, top1 = ('1e-3', '2e-3', '4e-3', 'tenth'), {}
    for names in (
        ('default', 'lape', 'mpvg', 'default-vit-lite', 'lape-vit-lite'),
        ('lape-shared', 'pvg', 'lape-shared-vit-lite', 'default-mean', 'lape-mean', 'mpvg-mean'),
    ):
        for name in names:
            runs = {rate: arms[f'{rate}-{name}'][0] for rate in rates}
            top1[name] = {rate: run.last.metrics[replication.METRIC] for rate, run in runs.items()}
        for rate in rates:
            assert [f'{top1[name][rate]:.2f}' for name in names] in rows, rate

    later = ('default', 'default-vit-lite', 'default-mean', 'lape', 'mpvg')
    highest = {name: arms[f'8e-3-{name}'][0].last.metrics[replication.METRIC] for name in later}
    assert [f'{highest[name]:.2f}' for name in later] in rows
    assert all(highest[name] < top1[name]['4e-3'] for name in later), 'the best rate is inside the grid'

    study = read_study('mmlape::studies/fashion-mnist-depth.yml')
    assert set(top1) == {arm.name for arm in study.arms}
    for name, found in top1.items():
        rate = max(rates, key=found.get)  # the lower one of two that are equal
        (arm,) = study.choose([name])
        assert arm.overrides['optim_wrapper.optimizer.lr'] == float('2e-3' if rate == 'tenth' else rate)
        assert ('optim_wrapper.paramwise_cfg.custom_keys' in arm.overrides) == (rate == 'tenth')

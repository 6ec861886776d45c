"""Averages, curves and the report, from work dirs as a training leaves them."""

import json
import re

import numpy as np
import pytest
from matplotlib import image as pictures

from mmlape.errors import DataError
from mmlape.experiments.aggregate import read_run, read_seeds, summarise
from mmlape.experiments.report import Arm, markdown_table, plot_curves, read_curves, write_report

LAST = {1: 60.1234567, 2: 61.5, 3: 59.25}
BEST = {1: 62.0, 2: 61.5, 3: 65.125}


def _write_run(folder, seed, last, best, state='finished', steps=(300, 200), key='mIoU', **more):
    work_dir = folder / f'seed_{seed}'
    work_dir.mkdir(parents=True)
    record = {
        'seed': seed,
        'state': state,
        'reason': more.pop('reason', None),
        'last': {'step': steps[0], 'metrics': {'mIoU': last, 'aAcc': 90.0, **more}},
        'best': {'step': steps[1], 'key': key, 'metrics': {'mIoU': best, 'aAcc': 91.0, **more}},
    }
    (work_dir / 'run.json').write_text(json.dumps(record))
    return work_dir


@pytest.fixture
def experiment(tmp_path):
    for seed in LAST:
        _write_run(tmp_path, seed, LAST[seed], BEST[seed])
    return tmp_path


def test_averages_are_numpys_and_last_and_best_stay_apart(experiment):
    summary = summarise(read_seeds(experiment))
    for which, values in (('last', LAST), ('best', BEST)):
        entry = summary[which]['metrics']['mIoU']
        assert entry['mean'] == pytest.approx(np.mean(list(values.values())), rel=1e-14)
        assert entry['std'] == pytest.approx(np.std(list(values.values()), ddof=1), rel=1e-12)
        assert entry['n'] == summary[which]['n'] == 3
        assert entry['values'] == {str(seed): value for seed, value in values.items()}
    assert summary['last']['steps'] == {'1': 300, '2': 300, '3': 300}
    assert summary['key'] == 'mIoU'
    assert summary['seeds'] == [1, 2, 3]


def test_one_run_has_no_deviation_and_undefined_values_do_not_count(tmp_path):
    _write_run(tmp_path, 1, 50.0, 51.0)
    single = summarise(read_seeds(tmp_path))['last']['metrics']['mIoU']
    assert (single['mean'], single['std'], single['n']) == (50.0, None, 1)
    _write_run(tmp_path, 2, None, 51.0, **{'coco/bbox_mAP_l': -1.0})
    both = summarise(read_seeds(tmp_path))
    assert both['last']['metrics']['mIoU']['n'] == 1
    assert both['last']['metrics']['coco/bbox_mAP_l'] == {'mean': None, 'std': None, 'n': 0, 'values': {}}
    assert both['best']['metrics']['mIoU'] == {'mean': 51.0, 'std': 0.0, 'n': 2, 'values': {'1': 51.0, '2': 51.0}}


def test_unfinished_runs_are_named_and_not_averaged(experiment):
    _write_run(experiment, 4, 1.0, 1.0, state='running')
    _write_run(experiment, 5, 1.0, 1.0, state='failed', reason='no memory')
    summary = summarise(read_seeds(experiment, [1, 2, 3, 4, 5, 6]))
    assert summary['unfinished'] == {'4': 'running', '5': 'failed: no memory', '6': 'missing'}
    assert summary['last']['metrics']['mIoU']['n'] == summary['best']['metrics']['mIoU']['n'] == 3


def test_what_is_no_repeat_is_not_averaged(experiment):
    with pytest.raises(DataError, match='same seed'):
        summarise([*read_seeds(experiment), read_run(experiment / 'seed_1')])
    longer = _write_run(experiment, 4, 60.0, 60.0, steps=(600, 200))
    with pytest.raises(DataError, match=r'different iterations, \[300, 600\]'):
        summarise(read_seeds(experiment))
    other = _write_run(experiment, 5, 60.0, 60.0, key='mAcc')
    with pytest.raises(DataError, match=r"different metrics: \['mAcc', 'mIoU'\]"):
        summarise([read_run(experiment / 'seed_1'), read_run(other)])
    with pytest.raises(DataError, match='seed 4, not 9'):
        read_run(longer, seed=9)


def test_table_puts_trained_beside_untrained(experiment):
    _write_run(experiment / 'single', 7, 0.123456, 0.2, key='coco/bbox_mAP', **{'coco/bbox_mAP': 0.123456})
    arms = [
        Arm('A | x', 'segmentation', read_seeds(experiment), ['mIoU'], {'mIoU': 1.5}),
        Arm('B', 'detection', read_seeds(experiment / 'single'), ['coco/bbox_mAP']),
    ]
    lines = markdown_table(arms).splitlines()
    assert len({line.count('|') for line in lines}) == 1
    mean, std = np.mean(list(LAST.values())), np.std(list(LAST.values()), ddof=1)
    assert f'| mIoU | 1, 2, 3 | 1.50 | {mean:.2f} ± {std:.2f} (3) | 62.88 ± 1.96 (3) |' in lines[2]
    assert '| coco/bbox_mAP | 7 | - | 0.1235 (1) | 0.1235 (1) |' in lines[3]


def _log(work_dir, name, rows):
    folder = work_dir / name / 'vis_data'
    folder.mkdir(parents=True)
    (folder / 'scalars.json').write_text('\n'.join(row if isinstance(row, str) else json.dumps(row) for row in rows))


def test_curves_of_a_resumed_run_are_one_line(tmp_path):
    loss = lambda i, value: {'lr': 0.1, 'loss': value, 'iter': i, 'step': i}  # noqa: E731
    _log(
        tmp_path, '20260101_000000', [loss(10, 4.0), {'mIoU': 5.0, 'time': 1, 'step': 10}, loss(20, 9.0), '{"lr": 0.']
    )
    _log(
        tmp_path, '20260101_010000', [loss(20, 3.0), {'mIoU': 7.0, 'time': 1, 'step': 20}, {'mIoU': None, 'step': 30}]
    )
    curves = read_curves(tmp_path)
    assert curves.loss == {10: 4.0, 20: 3.0}
    assert curves.metrics == {'mIoU': {10: 5.0, 20: 7.0}}


def test_curves_of_a_run_in_epochs_are_over_iterations(tmp_path):
    rows = []
    for epoch in (1, 2):
        rows += [{'loss': 1.0, 'iter': 50 * epoch, 'epoch': epoch, 'step': 50 * epoch}]
        rows += [{'coco/bbox_mAP': epoch / 10, 'step': epoch}]
    _log(tmp_path, '20260101_000000', rows)
    assert read_curves(tmp_path).metrics == {'coco/bbox_mAP': {50: 0.1, 100: 0.2}}


def test_report_has_its_pictures_and_links_that_lead_to_them(experiment):
    for seed in LAST:
        rows = [{'loss': 3.0 / i, 'iter': i, 'step': i} for i in range(1, 20)] + [{'mIoU': LAST[seed], 'step': 19}]
        _log(experiment / f'seed_{seed}', '20260101_000000', rows)
    arm = Arm('Segmenter, LaPE', 'segmentation', read_seeds(experiment, [1, 2, 3, 4]), ['mIoU'], {'mIoU': 2.0})
    curves = plot_curves([arm], experiment / 'report' / 'curves of all.png')
    drawn = pictures.imread(curves)[..., :3]
    blue = np.abs(drawn - np.array([0.12, 0.47, 0.71])).max(axis=-1) < 0.3
    assert blue[:, : drawn.shape[1] // 2].any() and blue[:, drawn.shape[1] // 2 :].any()
    report = write_report(
        experiment / 'report' / 'report.md', 'Demo', [arm], {'Loss': curves}, {'Seed 1': [curves]}, notes=['said']
    )
    text = report.read_text()
    links = re.findall(r'!\[.*?\]\((.+?)\)', text)
    assert len(links) == 2
    assert all((report.parent / link.replace('%20', ' ')).is_file() for link in links)
    assert 'Not counted: Segmenter, LaPE, seed 4: missing.' in text
    assert '| Segmenter, LaPE | segmentation | mIoU | 1, 2, 3 | 2.00 |' in text

"""Tables of result pages are what their scripts print from their archives; scripts are of the registered arms."""

import json
import re

import canvas
import canvas_objects
import depth
import numpy as np
import position_out
import pytest
import real_features
import replication
import sizes
import tiny
from scipy import stats

from mmlape.cli import main
from mmlape.lab.experiments.statistics import estimate
from mmlape.lab.runs.run import read_arms
from mmlape.lab.studies import read_study

RESULTS = tiny.ROOT / 'docs' / 'results'
PAGES = {
    'canvas': (canvas, 'canvas', '.', 0),
    'canvas-objects': (canvas_objects, 'canvas-objects', '.', 0),
    'depth': (depth, 'fashion-mnist-depth', 'fashion-mnist-depth', 2),
    'fashion-mnist-replication': (replication, 'fashion-mnist-replication', 'fashion-mnist-replication', 3),
    'real-features': (real_features, 'real-features', 'work_dirs/real-features', 1),
    'sizes': (sizes, 'sizes', 'mini-sizes-sweep', 2),
}
"""By page: its script, the archive, the folder in it that the script reads, the number of tables of another source."""
ARMS = {
    'mini-canvas': {name: canvas.SEEDS for name, one in canvas.READINGS.items() if one.sweep == canvas.SWEEP},
    'mini-canvas-objects': dict.fromkeys(canvas_objects.ARMS, canvas_objects.SEEDS),
    'mini-sizes': dict.fromkeys(sizes.ARMS, sizes.SEEDS),
    'fashion-mnist-depth': depth.SEEDS,
}
"""The arms and seeds of a registered study by its script."""


@pytest.fixture(scope='module')
def unpacked(tmp_path_factory):
    """Return the folder of an archive's files, unpacked once."""
    folders = {}

    def unpack(name):
        if name not in folders:
            folders[name] = tmp_path_factory.mktemp(name)
            tiny.unpack_records(name, folders[name])
        return folders[name]

    return unpack


def page(name):
    return (RESULTS / f'{name}.md').read_text()


def row(text, arm):
    """Return the cells of an arm's row of top-1."""
    (line,) = (line for line in text.splitlines() if line.startswith(f'| {arm} |') and '±' in line)
    return line


def tables(text):
    return re.findall(r'(?:^\|.*\n)+', text, re.M)


@pytest.mark.parametrize('name', PAGES)
def test_tables_are_what_the_script_prints_from_the_archive(unpacked, capsys, name):
    script, archive, folder, others = PAGES[name]
    script.main([str(unpacked(archive) / folder)])
    printed = tables(capsys.readouterr().out + '\n')
    shown = tables(page(name))
    assert len(shown) > others and len([table for table in shown if table not in printed]) == others


@pytest.mark.parametrize('name', ARMS)
def test_a_script_is_of_the_registered_arms_and_seeds(name):
    study = read_study(f'mmlape::studies/{name}.yml')
    assert {arm.name for arm in study.arms} == set(ARMS[name])
    assert {seed for seeds in ARMS[name].values() for seed in seeds} == set(study.seeds)


@pytest.mark.parametrize('name', ['fashion-mnist-depth', 'fashion-mnist-replication'])
def test_top1_is_the_mean_of_the_records(unpacked, name):
    text = page(name.removeprefix('fashion-mnist-') if 'depth' in name else name)
    for arm, runs in read_arms(unpacked(name) / name).items():
        one = estimate([run.last.metrics[replication.METRIC] for run in runs if run.counts])
        shown = f'| {one.mean:.2f} ± {one.std:.2f} ({one.n}) | {one.low:.2f} to {one.high:.2f} |'
        assert row(text, arm).endswith(shown), arm


def test_runs_that_enter_an_average_are_repeats_of_each_other(unpacked, tmp_path):
    """`mmlape report` refuses others."""
    work_dir = unpacked('real-features') / 'work_dirs' / 'real-features'
    assert main(['report', str(work_dir), '--out', str(tmp_path / 'report')]) == 0


def test_success_needs_both_bounds():
    """By scipy's two-sided test and by hand."""
    rng = np.random.default_rng(0)
    cure, plain = ({scale: list(rng.uniform(40, 90, 3)) for scale in (1.0, 2.0)} for _ in range(2))
    share = 100 * np.array(cure[2.0]) / cure[1.0]
    both = canvas.success(cure, plain)
    assert both.keeps == pytest.approx(stats.t.sf((share.mean() - 80) / (share.std(ddof=1) / 3**0.5), 2))
    moved = stats.ttest_ind(cure[1.0], np.array(plain[1.0]) - 2, equal_var=False)
    assert both.loses == pytest.approx(moved.pvalue / 2 if moved.statistic > 0 else 1 - moved.pvalue / 2)
    assert both.p == max(both) and canvas.success({**cure, 1.0: plain[1.0]}, plain).loses == 0


def test_a_question_waits_for_all_of_its_runs(tmp_path, capsys):
    runs = tiny.unpack_records('fashion-mnist-replication', tmp_path)
    file = runs / 'lape-vit-lite' / 'seed_220' / 'run.json'
    file.write_text(json.dumps(dict(json.loads(file.read_text()), iter=10)))
    replication.main([str(runs)])
    assert 'Not answered: 19 of 20 runs of lape-vit-lite are finished.' in capsys.readouterr().out
    tiny.unpack_records('canvas', tmp_path)
    file = tmp_path / canvas.SWEEP / 'report.json'
    report = json.loads(file.read_text())
    report['arms']['pape']['last']['metrics']['mIoU at 2']['values']['502'] = None
    file.write_text(json.dumps(report))
    canvas.main([str(tmp_path)])
    assert capsys.readouterr().out.count('Not answered: pape: seed 502') == 1


def test_the_table_of_position_taken_out_is_of_its_values():
    values = json.loads(position_out.VALUES.read_text())
    assert position_out.table(values).strip() in page('position-out')

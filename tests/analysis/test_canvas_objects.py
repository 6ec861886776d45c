"""The analysis of the registered study on objects is of its arms; its numbers are computed a second time."""

import json

import canvas_exploration
import canvas_objects
import numpy as np
import pytest
import tiny
from scipy import stats

from mmlape.lab.datasets.mini import scenes
from mmlape.lab.studies.study_file import read_study

CLASSES = (*'abcdefghij', 'background')


@pytest.fixture(scope='module')
def records(tmp_path_factory):
    folder = tmp_path_factory.mktemp('records')
    tiny.unpack_records('canvas-objects', folder)
    return folder


def sweeps(folder):
    """Write random evaluations of both sweeps; return the mIoU of objects by reading, scale and seed."""
    rng = np.random.default_rng(0)
    expected = {}
    for name in canvas_objects.READINGS:
        arm, _, tiled = name.partition(', ')
        sweep = canvas_objects.TILE if tiled else canvas_objects.SWEEP
        for seed in canvas_objects.SEEDS:
            for scale in (1, 1.5, 2):
                values = rng.uniform(10, 90, len(CLASSES))
                expected[name, scale, seed] = values[:10].mean()
                out = folder / sweep / arm / f'seed_{seed}' / f'size_{scale}'
                out.mkdir(parents=True)
                metrics = dict(per_class=dict(IoU=dict(zip(CLASSES, values))))
                (out / 'metrics.json').write_text(json.dumps(metrics))
    return expected


def test_the_analysis_is_of_the_registered_arms_and_seeds():
    study = read_study('mmlape::studies/mini-canvas-objects.yml')
    assert tuple(arm.name for arm in study.arms) == canvas_objects.ARMS
    assert tuple(study.seeds) == tuple(canvas_objects.SEEDS)


def test_shares_and_differences_are_computed_a_second_time(tmp_path, capsys):
    expected = sweeps(tmp_path)

    def of(name, scale):
        return np.array([expected[name, scale, seed] for seed in canvas_objects.SEEDS])

    shares = {name: 100 * of(name, 2) / of(name, 1) for name in canvas_objects.READINGS}
    answers = canvas_objects.answers(tmp_path)
    cells = [line.split(' | ') for line in answers['1. LaPE and MPVG against the default'].splitlines()[2:]]
    for (_, mean, _, p, _), name in zip(cells, ('lape', 'mpvg'), strict=True):
        assert mean == f'{shares[name].mean() - shares["default"].mean():.1f}'
        assert p == f'{stats.ttest_ind(shares[name], shares["default"], equal_var=False).pvalue:.2g}'
    t = (shares['lape'].mean() - 80) / (shares['lape'].std(ddof=1) / 3**0.5)
    assert f'| {stats.t.sf(t, 2):.2g} |' in canvas_objects.keeps_enough(tmp_path, ['lape'])
    row = next(line for line in answers['Means over the seeds'].splitlines() if line.startswith('| lape, tiled'))
    assert f'{of("lape, tiled", 1.5).mean():.1f} (' in row
    (tmp_path / canvas_objects.SWEEP / 'pape' / 'seed_602' / 'size_2' / 'metrics.json').unlink()
    with pytest.raises(SystemExit, match='pape: seed 602 is not evaluated at 2 times'):
        canvas_objects.main([str(tmp_path)])


def test_the_page_says_what_the_records_give(records, capsys):
    canvas_objects.main([str(records)])
    page = (tiny.ROOT / 'docs/results/canvas-objects.md').read_text()
    assert capsys.readouterr().out.strip() in page


@pytest.mark.parametrize('table', [canvas_exploration.rates, canvas_exploration.strengths])
def test_rates_and_strengths_are_those_of_the_records(records, table):
    page = (tiny.ROOT / 'docs/results/canvas.md').read_text()
    assert f'\n\n{table(records)}\n\n' in page


def test_explored_scenes_have_scans_for_training_alone():
    rng = np.random.default_rng(0)
    train, val = (scenes.Scans(split, rng) for split in scenes.SPLITS)
    explored = [canvas_exploration.TrainingScans(split, rng) for split in scenes.SPLITS]
    for label, registered in enumerate(val.of_class):
        parts = [set(one.of_class[label]) for one in explored]
        assert parts[0] | parts[1] == set(train.of_class[label]) and not parts[0] & parts[1]
        assert parts[1] and not parts[1] & set(registered)

"""The analysis of the registered study of cures is of its arms; its tests are scipy's and statsmodels' by hand."""

import json

import canvas
import numpy as np
import pytest
import tiny
from scipy import stats

from mmlape.lab.studies.study_file import read_study

STUDY = read_study('mmlape::studies/mini-canvas.yml')


def sweeps(folder, miou):
    """Write reports of the three sweeps, with ``miou(reading, scale, seed)``."""
    for sweep in (canvas.SWEEP, canvas.TILE, canvas.ANEW):
        arms = {
            reading.arm: dict(last=dict(metrics={
                f'mIoU at {scale:g}': dict(values={str(seed): miou(name, scale, seed) for seed in canvas.SEEDS})
                for scale in canvas.SCALES
            }))
            for name, reading in canvas.READINGS.items() if reading.sweep == sweep
        }  # fmt: skip
        (folder / sweep).mkdir()
        (folder / sweep / 'report.json').write_text(json.dumps(dict(arms=arms)))


def test_the_analysis_is_of_the_registered_arms_and_seeds():
    as_trained = [name for name, one in canvas.READINGS.items() if one.sweep == canvas.SWEEP]
    assert [arm.name for arm in STUDY.arms] == as_trained and tuple(STUDY.seeds) == tuple(canvas.SEEDS)
    assert {one.arm for one in canvas.READINGS.values()} == set(as_trained)


def test_shares_and_success_are_computed_a_second_time(tmp_path):
    rng = np.random.default_rng(0)
    drawn = {}

    def miou(name, scale, seed):
        own = canvas.READINGS[name].arm if scale == 1 else name
        return drawn.setdefault((own, scale, seed), 100 * rng.uniform(0.4, 0.9))

    sweeps(tmp_path, miou)
    lape, cure = ({s: np.array([drawn[one, s, seed] for seed in canvas.SEEDS]) for s in (1.0, 2.0)}
                  for one in ('lape', 'lape-rescale'))  # fmt: skip
    share = [100 * one[2.0] / one[1.0] for one in (cure, lape)]
    row = canvas.share_table(tmp_path, ['lape-rescale'], 'lape').splitlines()[2]
    p = stats.ttest_ind(*share, equal_var=False).pvalue
    assert row.split(' | ')[1] == f'{share[0].mean() - share[1].mean():.1f}' and f'{p:.2g}' in row
    found = canvas.success(canvas.read(tmp_path, 'lape-rescale'), canvas.read(tmp_path, 'lape'))
    t = (share[0].mean() - 80) / (share[0].std(ddof=1) / 3**0.5)
    moved = stats.ttest_ind(cure[1.0], lape[1.0] - 2, equal_var=False)
    assert found.keeps == pytest.approx(stats.t.sf(t, 2))
    assert found.loses == pytest.approx(moved.pvalue / 2 if moved.statistic > 0 else 1 - moved.pvalue / 2)
    tiled = canvas.success(canvas.read(tmp_path, 'lape, tiled'), canvas.read(tmp_path, 'lape'))
    assert tiled.loses == 0 and tiled.p == tiled.keeps


def test_a_question_waits_for_its_runs_alone(tmp_path, capsys):
    sweeps(tmp_path, lambda name, scale, seed: None if name == 'pape' and seed == 502 else 50 + seed % 7 - scale)
    canvas.main([str(tmp_path)])
    out = capsys.readouterr().out
    assert out.count('Not answered: pape: seed 502') == 1 and out.count('Not answered') == 1


def test_the_page_says_what_the_records_give(tmp_path, capsys):
    tiny.unpack_records('canvas', tmp_path)
    canvas.main([str(tmp_path)])
    answers = capsys.readouterr().out.splitlines()
    page = (tiny.ROOT / 'docs/results/canvas.md').read_text().splitlines()
    assert len([line for line in answers if line.startswith('### ')]) == len(canvas.QUESTIONS) + 1
    assert [line for line in answers if line not in page] == []

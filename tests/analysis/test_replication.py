"""The analysis of the registered study, on runs whose results are known; its page, from the records of its runs."""

import csv
import math

import numpy as np
import pytest
import replication
import tiny
from scipy.stats import ttest_rel
from synthetic import write_log, write_run

from mmlape.cli import main
from mmlape.lab.runs.run import read_arms
from mmlape.lab.studies.study_file import read_study

PAGE = tiny.ROOT / 'docs/results/fashion-mnist-replication.md'

GAINS = {
    'lape': 0.5,
    'lape-shared': 0.2,
    'unshared': -0.1,
    'sincos1d-lape': 1.5,
    'sincos1d': -1.0,
    'deep-lape': 4.0,
    'deep': 3.0,
}


@pytest.fixture
def values(tmp_path):
    """Top-1 of each arm and seed, which are also written as finished runs; the stems' gradient norms beside them."""
    random, found = np.random.RandomState(0), {}
    ends = [('', replication.SEEDS), ('-vit-lite', replication.SEEDS)]
    arms = [(f'{arm}{end}', seeds) for arm in ('default', 'lape', 'lape-shared', 'unshared') for end, seeds in ends]
    arms += [(arm, replication.SEEDS[:8]) for arm in ('sincos1d', 'sincos1d-lape', 'deep', 'deep-lape')]
    for arm, seeds in arms:
        gain = GAINS.get(arm.removesuffix('-vit-lite'), 0)
        found[arm] = {seed: 88 + gain + random.randn() / 10 for seed in seeds}
    for arm, norm in (('stem-p7', 4.0), ('dual-p7', 2.0), ('stem-p4', 8.0), ('dual-p4', 1.0)):
        found[arm] = {seed: 80.0 + random.randn() for seed in (201, 202, 203)}
        for seed in found[arm]:
            sizes = {
                900: 99.0,
                1500: norm * math.exp(random.randn() / 100),
                2000: norm,
            }  # the last 1,000 iterations count
            rows = [
                {'grad_norm/patch_embed': size, 'grad_norm/all': 9.0, 'step': step} for step, size in sizes.items()
            ]
            write_log(tmp_path / arm / f'seed_{seed}', rows)
    for arm, row in found.items():
        for seed, value in row.items():
            write_run(tmp_path / arm, seed, {'accuracy/top1': value}, key='accuracy/top1')
    return found


def test_each_question_is_answered_by_its_own_runs(values, tmp_path, capsys):
    assert set(values) == {arm.name for arm in read_study('mmlape::studies/fashion-mnist-replication.yml').arms}
    runs, ordered = replication.Runs(str(tmp_path)), {arm: list(row.values()) for arm, row in values.items()}
    cvt, vit_lite = (one for _, one in replication.primary(runs))
    p = [ttest_rel(ordered[f'lape{end}'], ordered[f'default{end}']).pvalue for end in ('', '-vit-lite')]
    assert (cvt.p, vit_lite.p) == pytest.approx(p) and cvt.n == (20, 20)
    assert (cvt.holm, vit_lite.holm) == pytest.approx(
        [2 * min(p), max(2 * min(p), max(p))][:: 1 if p[0] < p[1] else -1]
    )
    assert cvt.mean == pytest.approx(np.mean(ordered['lape']) - np.mean(ordered['default']))

    rows = dict(replication.joinings(runs))
    assert len(rows) == 8 and rows['ViT-Lite: unshared - lape'].n == (8, 8)
    assert rows['CVT: lape-shared - default'].mean == pytest.approx(0.2, abs=0.15)
    assert rows['CVT: unshared - lape'].mean == pytest.approx(-0.6, abs=0.15)
    *_, (_, more) = replication.sinusoids(runs)
    first = [np.array(ordered[arm][:8]) for arm in ('sincos1d-lape', 'sincos1d', 'lape', 'default')]
    assert more.p == pytest.approx(ttest_rel(first[0] - first[1], first[2] - first[3]).pvalue)
    assert more.mean == pytest.approx(2.0, abs=0.2)
    (_, deep), (_, two), (_, less) = replication.depth(runs)
    assert (deep.mean, two.mean, less.mean) == pytest.approx((1.0, 0.5, 0.5), abs=0.2) and two.n == less.n == (5, 5)
    _, (_, coarse), _, (_, fine), (_, between) = replication.stems(runs)
    assert (coarse.mean, fine.mean) == pytest.approx((math.log(1 / 2), math.log(1 / 8)), abs=0.05)
    assert between.mean == pytest.approx(math.log(1 / 4), abs=0.05)

    (_, plain), (_, lape) = replication.layers(runs)
    pairs = [(values['deep'], values['default']), (values['deep-lape'], values['lape'])]
    for found, (deep_runs, two_runs) in zip((plain, lape), pairs):
        wanted = ttest_rel(*([row[seed] for seed in replication.FIVE] for row in (deep_runs, two_runs)))
        assert (found.p, found.n) == (pytest.approx(wanted.pvalue), (5, 5))
    assert (plain.mean, lape.mean) == pytest.approx((3.0, 3.5), abs=0.2)
    together = np.corrcoef(ordered['lape'], ordered['default'])[0, 1]
    assert f'a correlation of {together:.2f},' in next(replication.pairing(runs))

    replication.main([str(tmp_path)])
    printed = capsys.readouterr().out
    assert (
        printed.count('### ') == 6 and 'Not answered' not in printed and f'{cvt.low:.3f} to {cvt.high:.3f}' in printed
    )


def test_a_question_waits_for_all_of_its_runs(values, tmp_path, capsys):
    write_run(tmp_path / 'lape-vit-lite', 220, None, state='running', iter=10)
    write_run(tmp_path / 'dual-p7', 203, {'accuracy/top1': 80.0}, key='accuracy/top1', iter=10)
    replication.main([str(tmp_path)])
    printed = capsys.readouterr().out
    assert 'Not answered: 19 of 20 runs of lape-vit-lite are finished.' in printed
    assert 'Not answered: 2 of 3 runs of dual-p7 are finished.' in printed and printed.count('Not answered') == 2


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

    study = read_study('mmlape::studies/fashion-mnist-depth.yml')
    assert set(top1) == {arm.name for arm in study.arms}
    for name, found in top1.items():
        rate = max(rates, key=found.get)  # the lower one of two that are equal
        (arm,) = study.choose([name])
        assert arm.overrides['optim_wrapper.optimizer.lr'] == float('2e-3' if rate == 'tenth' else rate)
        assert ('optim_wrapper.paramwise_cfg.custom_keys' in arm.overrides) == (rate == 'tenth')

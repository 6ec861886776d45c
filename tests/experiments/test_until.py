"""Studies that stop when they know: error rates by simulation, a second implementation of a look, and real runs."""

import json

import numpy as np
import pytest
import tiny
from each import each
from scipy import stats
from synthetic import write_run

from mmlape.cli import main
from mmlape.errors import ConfigError
from mmlape.lab.experiments.sequential import SequentialPlan, decide, looks
from mmlape.lab.experiments.until import UntilStudy, as_json, exit_status, read_until

STUDIES = 2000
NOISE = 3 * (0.05 * 0.95 / STUDIES) ** 0.5
SPREADS = {
    'equal': lambda random, size: random.normal(size=(2, *size)),
    'unequal': lambda random, size: random.normal(size=(2, *size)) * np.array([1, 8]).reshape(2, 1, 1),
    'skewed': lambda random, size: random.lognormal(size=(2, *size)),
    'heavy-tailed': lambda random, size: random.standard_t(3, size=(2, *size)),
}


@pytest.mark.parametrize('most', [5, 20])
def test_without_a_difference_at_most_alpha_decide_wrongly(most):
    """At any look. Of three arms, any of two comparisons."""
    for spread in each(SPREADS):
        random, plan = np.random.default_rng(1), SequentialPlan(margin=1e-9, most=most, comparisons=2)
        wrong = np.zeros(STUDIES, dtype=bool)
        baseline, _ = SPREADS[spread](random, (STUDIES, most))
        for _ in range(2):
            _, values = SPREADS[spread](random, (STUDIES, most))
            _, better, worse = decide(plan, values, baseline)
            wrong |= better | worse
        assert wrong.mean() <= 0.05 + NOISE


def test_a_difference_of_the_margin_is_called_none_in_at_most_alpha():
    plan = SequentialPlan(margin=1.5)
    values, baseline = np.random.default_rng(1).normal(size=(2, STUDIES, 20))
    seeds, better, worse = decide(plan, values + 1.5, baseline)
    called_none = (seeds < 20) & ~better & ~worse
    assert called_none.mean() <= 0.05 + NOISE and better.mean() > 0.9


def test_a_look_by_scipy():
    """The first look that decides is the first whose interval at its level excludes 0 or lies within the margin."""
    random = np.random.default_rng(2)
    for shift in each((0.0, 0.3, 2.0)):
        plan = SequentialPlan(margin=1.0, most=12)
        a, b = random.normal(70 + shift, 1.0, 12), random.normal(70, 0.5, 12)
        found = looks(plan, dict(enumerate(a)), dict(enumerate(b)), range(12))
        for place, look in enumerate(found):
            test = stats.ttest_ind(a[: place + 3], b[: place + 3], equal_var=False)
            low, high = test.confidence_interval(1 - plan.levels[place])
            assert (look.low, look.high) == pytest.approx((low, high), rel=1e-9)
            decided = 'better' if low > 0 else 'worse' if high < 0 else 'equal' if max(-low, high) < 1 else ''
            assert look.decision == decided and bool(decided) <= (place == len(found) - 1)
        seeds, better, worse = decide(plan, a[None], b[None])
        assert (seeds[0], better[0], worse[0]) == (
            found[-1].n, found[-1].decision == 'better', found[-1].decision == 'worse'
        )  # fmt: skip


def study(folder, seeds=range(1, 7), margin=0.3, **more):
    return UntilStudy(folder, ('base', 'arm'), tuple(seeds), margin, **more)


def test_seeds_count_in_their_order_and_failed_ones_are_missing(tmp_path):
    """A seed that is still to come holds back those behind it; killed at any point, the looks are the same."""
    until = study(tmp_path)
    until.fix()
    for seed in range(1, 7):
        write_run(tmp_path / 'base', seed, 50 + 0.1 * seed)
        write_run(tmp_path / 'arm', seed, 50.3 + (-1) ** seed)
    write_run(tmp_path / 'arm', 2, None, state='failed', reason='it ran into NaN')
    complete = until.verdicts()[0]
    assert [look.n for look in complete.looks] == [3, 4, 5] and complete.decision == ''
    write_run(tmp_path / 'arm', 5, 51.0, state='running')
    assert until.verdicts()[0].looks == complete.looks[:1]
    assert str(until.verdicts()[0]).startswith('arm is undecided against base: mIoU ')
    assert read_until(tmp_path).verdicts() == until.verdicts()


@pytest.mark.parametrize(('shift', 'decision', 'status'), [(9, 'better', 0), (-9, 'worse', 1), (0, 'equal', 1)])
def test_verdicts_have_a_sentence_a_line_and_a_status(tmp_path, shift, decision, status):
    for seed in range(1, 7):
        write_run(tmp_path / 'base', seed, 50 + 0.01 * seed)
        write_run(tmp_path / 'arm', seed, 50 + shift + 0.01 * ((seed * 5) % 7))
    verdicts = study(tmp_path).verdicts()
    assert exit_status(verdicts) == status and exit_status(verdicts[:0]) == 1
    study(tmp_path).fix()
    assert main(['report', str(tmp_path)]) == 0
    assert f'| arm | 3 | {verdicts[0].looks[0].mean:+.2f} |' in (tmp_path / 'report' / 'report.md').read_text()
    row = json.loads(as_json(verdicts))[0]
    assert row['decision'] == decision and row['n'] == 3 and row['most'] == 6


def test_a_plan_cannot_change_once_it_is_fixed(tmp_path):
    study(tmp_path).fix()
    study(tmp_path).fix()
    for change, reason in (
        (dict(margin=0.5), 'margin: 0.3 -> 0.5'),
        (dict(seeds=range(1, 9)), r'seeds: .* -> .*8'),
        (dict(alpha=0.1), 'alpha: 0.05 -> 0.1'),
    ):
        with pytest.raises(ConfigError, match=reason):
            study(tmp_path, **change).fix()
    for change, reason in (
        (dict(margin=0.0), '--until 0'),
        (dict(seeds=(1, 2)), '--max-seeds 2'),
        (dict(alpha=0.0), '--alpha 0'),
    ):
        with pytest.raises(ConfigError, match=reason):
            study(tmp_path / 'new', **change).fix()
    write_run(tmp_path / 'base', 1, 50.0)
    write_run(tmp_path / 'arm', 1, {'accuracy/top1': 50.0})
    with pytest.raises(ConfigError, match='other metrics'):
        study(tmp_path).verdicts()


@tiny.in_a_fork
def test_real_arms_stop_when_they_are_decided(config, tmp_path, python):
    """Equal arms within a margin of 99 points: three seeds each, of twenty."""
    arms = (config.name, '--arm', 'other', config.name, 'model.backbone.pe_joining=default')
    short = ('--cfg-options', 'train_cfg.max_iters=2', 'train_cfg.val_interval=2')
    command = (tiny.ROOT / 'tools' / 'multi_seed.py', *arms, '--until', 99, '--parallel', 2, *short)
    said = tiny.run(*command, '--work-dir', tmp_path / 'work', cwd=config.parent, status=1)
    assert 'verdict: other is within the margin of tiny: mIoU' in said and '3 of at most 20 seeds' in said
    assert len(list((tmp_path / 'work').glob('*/seed_*/run.json'))) in range(6, 20)
    again = tiny.run(*command, '--work-dir', tmp_path / 'work', cwd=config.parent, status=1)
    assert 'started' not in again and again.splitlines()[-1] == said.splitlines()[-1]
    shown = tiny.run(*tiny.MMLAPE, 'status', tmp_path / 'work', cwd=tmp_path)
    assert 'other is within the margin of tiny' in shown

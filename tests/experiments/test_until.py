"""Studies that stop when they know: error rates by simulation, a second implementation of a look, and real runs."""

import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import tiny
from each import each
from scipy import stats
from synthetic import settings, write_run
from test_scheduler import Instant, planned
from told import keep_figures

import mmlape.lab.experiments.report  # noqa: F401  (imported before its figures are described)
from mmlape.cli import main
from mmlape.errors import ConfigError, DataError
from mmlape.files import read_json, write_json
from mmlape.lab.decoding import encode
from mmlape.lab.experiments import scheduler
from mmlape.lab.experiments.multi_seed import _run_until
from mmlape.lab.experiments.sequential import SequentialPlan, decide, looks
from mmlape.lab.experiments.statistics import NO_SPREAD
from mmlape.lab.experiments.until import FILE, UntilStudy, as_json, exit_status, read_until
from mmlape.lab.runs.run import read_run

STUDIES = 3000
NOISE = 3 * (0.05 * 0.95 / STUDIES) ** 0.5
SPREADS = {
    'equal': lambda random, size: random.normal(size=(2, *size)),
    'unequal': lambda random, size: random.normal(size=(2, *size)) * np.array([1, 8]).reshape(2, 1, 1),
    'skewed': lambda random, size: random.lognormal(size=(2, *size)),
    'heavy-tailed': lambda random, size: random.standard_t(3, size=(2, *size)),
}


def coarse(images, deviations):
    """Scores of so many images, deviations in images, about the middle between two of them."""
    spread = np.array(deviations).reshape(2, 1, 1)
    return lambda random, size: 100 * np.round(0.8 * images + 0.5 + spread * random.normal(size=(2, *size))) / images


COARSE = {
    f'{images} images, {deviations}': coarse(images, deviations)
    for images in (50, 200, 2000)
    for deviations in ((0.3, 0.3), (3, 0.3))
}


@pytest.mark.parametrize('most', [5, 20])
def test_without_a_difference_at_most_alpha_decide_wrongly(most):
    """At any look. Of three arms, any of two comparisons."""
    for _, draw in each((SPREADS | COARSE).items()):
        random, plan = np.random.default_rng(1), SequentialPlan(margin=1e-9, most=most, comparisons=2)
        wrong = np.zeros(STUDIES, dtype=bool)
        baseline, _ = draw(random, (STUDIES, most))
        for _ in range(2):
            _, values = draw(random, (STUDIES, most))
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
        assert found[-1].decision or len(found) == 10
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
    return UntilStudy('base', ['arm'], list(seeds), margin, work_dir=folder, **more)


class Scored(Instant):
    """Runs that end at once with the scores of a study, or fail by chance."""

    def __init__(self, scores, random):
        super().__init__(most=2)
        self.scores, self.random, self.check = scores, random, lambda: None

    def start(self, planned, lock, slot):
        arm, seed = planned.arm.name, planned.run.seed
        self.fails = (seed,) if self.random.random() < 0.15 else ()
        job = super().start(planned, lock, slot)
        if not self.fails:
            write_run(planned.folder.parent, seed, self.scores[arm][seed])
        self.check()
        return job


@pytest.mark.parametrize('images', [50, 2000])
def test_failures_retries_and_lost_runs_change_no_decision(tmp_path, monkeypatch, capsys, images):
    """Whatever fails, is trained again or is lost, what is decided is what all scores decide, and the end is that.

    Three arms, whose scores are all known beforehand.
    """
    monkeypatch.setattr(scheduler, 'time', SimpleNamespace(sleep=lambda _: None, monotonic=lambda: 0.0))
    seeds, arms = range(1, 8), ('base', 'near', 'far')
    random, folder = np.random.default_rng([images, 0]), tmp_path
    drawn = 100 * np.round(images * random.normal([[0.8], [0.81], [0.9]], 0.01, (3, 7))) / images
    scores = {arm: dict(zip(seeds, row.tolist())) for arm, row in zip(arms, drawn)}
    until = UntilStudy(arms[0], [*arms[1:]], list(seeds), 3.0, work_dir=folder)
    _, better, worse = decide(until.plan, drawn[1:], drawn[:1].repeat(2, 0))
    final = [looks(until.plan, scores[arm], scores['base'], seeds)[-1].decision for arm in arms[1:]]
    assert [decision == 'better' for decision in final] == better.tolist()
    assert [decision == 'worse' for decision in final] == worse.tolist()

    def check():
        known = [verdict.decision for verdict in until.verdicts()]
        assert all(now in ('', then) for now, then in zip(known, final))

    launcher = Scored(scores, random)
    launcher.check = check
    for attempt in range(30):
        plan = [planned(folder, seed, 'start', arm) for seed in seeds for arm in arms]
        left = [one for one in plan if not read_run(one.folder, one.run.seed).finished]
        _run_until(until, left, launcher)
        check()
        if attempt in (1, 3):
            lost = sorted(folder.glob('*/seed_*/run.json'))
            shutil.rmtree(lost[random.integers(len(lost))].parent)
        elif [verdict.decision for verdict in until.verdicts()] == final and attempt > 3:
            break
    assert [verdict.decision for verdict in until.verdicts()] == final
    capsys.readouterr()


def test_seeds_behind_one_that_is_missing_wait_for_it(tmp_path, monkeypatch):
    """It is still to come, or has failed, which the verdict names; none behind it is started after a failure."""
    monkeypatch.setattr(scheduler, 'time', SimpleNamespace(sleep=lambda _: None, monotonic=lambda: 0.0))
    until = study(tmp_path)
    until.fix()
    for seed in range(1, 7):
        write_run(tmp_path / 'base', seed, 50 + 0.1 * seed)
        write_run(tmp_path / 'arm', seed, 50.3 + (-1) ** seed)
    complete = until.verdicts()[0]
    assert [look.n for look in complete.looks] == [3, 4, 5, 6] and complete.decision == ''
    assert str(complete).startswith('arm is undecided against base: mIoU ')
    write_run(tmp_path / 'arm', 5, 51.0, state='running')
    assert until.verdicts()[0].looks == complete.looks[:2] and until.verdicts()[0].held is None
    write_run(tmp_path / 'arm', 2, None, state='failed', reason='it ran into NaN')
    assert read_until(tmp_path).verdicts() == until.verdicts() and until.verdicts()[0].looks == ()
    assert 'the seeds behind arm, seed 2, wait for it (failed at' in str(until.verdicts()[0])
    shutil.rmtree(tmp_path / 'arm')
    launcher = Instant(fails=(2,))
    plan = [planned(tmp_path, seed) for seed in range(1, 7)]
    assert _run_until(until, plan, launcher) == 2 and [seed for _, seed, _ in launcher.started] == [1, 2]
    write_run(tmp_path / 'arm', 2, None)
    assert _run_until(until, plan[2:], launcher) == 2 and len(launcher.started) == 2, 'finished without an evaluation'
    assert 'move its folder away' in str(until.verdicts()[0])


def test_an_arm_that_is_undecided_again_gets_its_seeds(tmp_path):
    """A run is unwanted only for now: another one that ends may change that."""
    wanted, launcher = set(), Instant()
    found = scheduler.Scheduler(
        [planned(tmp_path, seed, arm=arm) for seed in (1, 2) for arm in ('decided', 'arm')],
        launcher,
        poll_interval=0,
        on_finished=lambda one: wanted.add('decided'),
        is_wanted=lambda one: one.arm.name == 'arm' or one.arm.name in wanted,
    )
    assert [run.state for run in found.run()] == ['finished'] * 4


def test_scores_without_spread_decide_nothing_in_verdict_and_report_alike(tmp_path, monkeypatch, capsys):
    """One line for the pair, against the first arm of the command, which the report alone would not choose."""
    keep_figures(monkeypatch)
    for seed in (1, 2, 3):
        write_run(tmp_path / 'zeta', seed, 75.0, chosen=settings('lape'))
        write_run(tmp_path / 'alpha', seed, 75.5, chosen=settings('default'))
    write_json(tmp_path / FILE, dict(baseline='zeta', arms=['alpha'], seeds=[1, 2, 3, 4], margin=0.3, alpha=0.05))
    (verdict,) = read_until(tmp_path).verdicts()
    line = f'alpha is undecided against zeta: mIoU +0.50 ({NO_SPREAD}), 3 of at most 4 seeds'
    assert str(verdict) == line and verdict.looks[-1].low is None
    assert json.loads(as_json([verdict]))[0]['low'] is None
    assert main(['report', str(tmp_path)]) == 0 and main(['status', str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert shown.count('alpha is ') == shown.count(line) == 2 and 'zeta is ' not in shown
    compared, *_ = read_json(tmp_path / 'report/report.json')['comparisons']
    assert (compared['arm'], compared['baseline']) == ('alpha', 'zeta') and NO_SPREAD in json.dumps(compared)
    assert main(['report', str(tmp_path), '--arms', 'alpha']) == 0, 'without the baseline of the verdicts'
    (tmp_path / 'zeta').rename(tmp_path / 'eta')
    assert main(['report', str(tmp_path)]) == 0


@pytest.mark.parametrize(('shift', 'decision', 'status'), [(9, 'better', 0), (-9, 'worse', 1), (0, 'equal', 1)])
def test_verdicts_have_a_sentence_a_line_and_a_status(tmp_path, monkeypatch, shift, decision, status):
    keep_figures(monkeypatch)
    for seed in range(1, 7):
        write_run(tmp_path / 'base', seed, 50 + 0.01 * seed)
        write_run(tmp_path / 'arm', seed, 50 + shift + 0.01 * ((seed * 5) % 7))
    verdicts = study(tmp_path).verdicts()
    assert exit_status(verdicts) == status and exit_status(verdicts[:0]) == 1
    write_json(tmp_path / FILE, encode(study(tmp_path)))
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
    text = (tmp_path / FILE).read_text()
    write_run(tmp_path / 'base', 1, 50.0)
    write_run(tmp_path / 'arm', 1, {'accuracy/top1': 50.0})
    with pytest.raises(ConfigError, match='other metrics'):
        study(tmp_path).verdicts()
    write_json(tmp_path / FILE, dict(json.loads(text), seeds=['base', 'arm']))
    with pytest.raises(DataError, match=r'until.json: seeds.0=\"base\" is not a whole number'):
        read_until(tmp_path)


def test_a_plan_beside_results_is_refused(tmp_path):
    """Of the seeds that it has; those of others, and a run that has failed without an evaluation, are none."""
    write_run(tmp_path / 'base', 9, 50.0)
    write_run(tmp_path / 'arm', 1, None, state='failed')
    study(tmp_path, seeds=(1, 2, 3)).fix(write=False)
    write_run(tmp_path / 'arm', 2, 50.0, state='running')
    for write in (True, False):
        with pytest.raises(ConfigError, match=r'has those of arm, seed 2: give another --work-dir, or --seeds'):
            study(tmp_path, seeds=(1, 2, 3)).fix(write)
    assert not (tmp_path / FILE).exists()


@tiny.in_a_fork
def test_real_arms_stop_when_they_are_decided(config, tmp_path, python, capsys):
    """Equal arms within a margin of 99 points: three seeds each, of twenty."""
    arms = (config.name, '--arm', 'other', config.name, 'model.backbone.pe_joining=default')
    short = ('--cfg-options', 'train_cfg.max_iters=2', 'train_cfg.val_interval=2')
    command = (tiny.ROOT / 'tools' / 'multi_seed.py', *arms, '--until', 99, '--parallel', 2, *short)
    said = tiny.run(*command, '--work-dir', tmp_path / 'work', cwd=config.parent, status=1)
    assert 'verdict: other is within the margin of tiny: mIoU' in said and '3 of at most 20 seeds' in said
    assert len(list((tmp_path / 'work').glob('*/seed_*/run.json'))) in range(6, 20)
    again = tiny.run(*command, '--work-dir', tmp_path / 'work', cwd=config.parent, status=1)
    assert 'started' not in again and again.splitlines()[-1] == said.splitlines()[-1]
    assert main(['status', str(tmp_path / 'work')]) == 0
    assert 'other is within the margin of tiny' in capsys.readouterr().out

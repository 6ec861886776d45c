"""A study that stops when it knows: its plan in the work dir, and what the runs there have decided."""

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from mmlape.errors import ConfigError
from mmlape.files import read_json, write_json
from mmlape.lab.evaluation.names import label
from mmlape.lab.experiments.report.arms import ArmRuns, average
from mmlape.lab.experiments.sequential import Look, SequentialPlan, looks
from mmlape.lab.experiments.statistics import LEAST, pooled, seeds_needed
from mmlape.lab.runs.run import read_seeds
from mmlape.page import Part
from mmlape.tables import text_table

FILE = 'until.json'
"""In the work dir: the plan, as it was fixed before the first seed."""
FIRST = 121
"""The first seed, if none are named; the others follow it."""
DECISIONS = {
    'better': 'is better than',
    'worse': 'is worse than',
    'equal': 'is within the margin of',
    '': 'is undecided against',
}
BETTER, NOT_BETTER, UNDECIDED = 0, 1, 2
"""Exit statuses."""


@dataclass(frozen=True)
class UntilStudy:
    """Arms that are compared with the first one, seed by seed, until each comparison is decided.

    Attributes:
        work_dir: Holds ``<arm>/seed_<S>``.
        arms: Their names, the baseline first.
        seeds: In their order, which nobody chooses afterwards.
        margin: As of `SequentialPlan`, in points.
        alpha: As of `SequentialPlan`, of the complete study.
        allow_software: As in `averages.check_repeats`.
    """

    work_dir: Path
    arms: tuple[str, ...]
    seeds: tuple[int, ...]
    margin: float
    alpha: float = 0.05
    allow_software: bool = False

    @property
    def plan(self) -> SequentialPlan:
        """Return the plan of each comparison."""
        return SequentialPlan(self.margin, len(self.seeds), self.alpha, len(self.arms) - 1)

    def fix(self, write: bool = True) -> None:
        """Record the plan before the first seed; a later call must have the same.

        Args:
            write: Whether to record it, or only to check it.

        Raises:
            ConfigError: It has fewer than two arms or three seeds, values out of range, or is not the recorded one.
        """
        if len(self.arms) < 2:
            raise ConfigError(f'--until compares arms with the first one, and {self.arms[0]} is alone: name another')
        self.plan  # noqa: B018  (checks its values)
        mine, recorded = self._content(), read_json(self.work_dir / FILE)
        if recorded is None and write:
            write_json(self.work_dir / FILE, mine)
        changed = [key for key in mine if recorded is not None and mine[key] != recorded.get(key)]
        if changed:
            lines = ', '.join(f'{key}: {recorded.get(key)} -> {mine[key]}' for key in changed)
            raise ConfigError(
                f'{self.work_dir / FILE} fixed the plan before the first seed ({lines}): a plan that follows the '
                'results decides nothing; give the same one, or another --work-dir'
            )

    def _content(self) -> dict:
        return dict(
            baseline=self.arms[0],
            arms=list(self.arms[1:]),
            seeds=list(self.seeds),
            margin=self.margin,
            alpha=self.alpha,
        )

    def verdicts(self) -> list['Verdict']:
        """Return what is known of each arm but the baseline.

        Seeds count in their order, up to the first one that is still to come: runs that end early must not choose.
        A seed whose run has failed is left out.
        """
        runs = {name: read_seeds(self.work_dir / name, self.seeds) for name in self.arms}
        results = [average(ArmRuns(name, of_arm), self.allow_software) for name, of_arm in runs.items()]
        metrics = {result.name: result.metrics[0] for result in results if result.counted and result.metrics}
        if len(set(metrics.values())) > 1:
            listed = ', '.join(f'{name} {metric}' for name, metric in metrics.items())
            raise ConfigError(f'--until: the arms have other metrics ({listed}): compare arms of one task')
        metric = next(iter(metrics.values()), '')
        values = {result.name: result.values('last', metric) for result in results}
        baseline, verdicts = self.arms[0], []
        for name in self.arms[1:]:
            pairs = zip(runs[name], runs[baseline], strict=True)
            ended = itertools.takewhile(lambda pair: all(run.state in ('finished', 'failed') for run in pair), pairs)
            order = [run.seed for run, _ in ended]
            found = tuple(looks(self.plan, values[name], values[baseline], order))
            spread = pooled([list(values[arm].values()) for arm in (name, baseline)])
            fixed = seeds_needed(self.margin, spread.std) if spread and spread.std else None
            verdicts.append(Verdict(name, baseline, metric, len(self.seeds), found, fixed))
        return verdicts


@dataclass(frozen=True)
class Verdict:
    """What is known of an arm and the baseline."""

    arm: str
    baseline: str
    metric: str  # empty before the first run has finished
    most: int  # seeds of the plan
    looks: tuple[Look, ...]  # with 3, 4, ... seeds; the last one decides, or the study continues
    fixed: int | None = None  # seeds of either arm by which a test at one time finds the margin; None if unknown

    @property
    def decision(self) -> str:
        """Return 'better', 'worse', 'equal' or ''."""
        return self.looks[-1].decision if self.looks else ''

    def __str__(self) -> str:
        verb = DECISIONS[self.decision]
        if not self.looks:
            return f'{self.arm} {verb} {self.baseline}: fewer than {LEAST} of at most {self.most} seeds have ended'
        last = self.looks[-1]
        return (
            f'{self.arm} {verb} {self.baseline}: {label(self.metric)} {last.mean:+.2f} ({last.low:+.2f} to '
            f'{last.high:+.2f}), {last.n} of at most {self.most} seeds'
        )


def read_until(work_dir: str | Path) -> UntilStudy | None:
    """Return the study whose plan is in a work dir; None if there is none."""
    plan: Mapping | None = read_json(Path(work_dir) / FILE)
    if plan is None:
        return None
    arms = (plan['baseline'], *plan['arms'])
    return UntilStudy(Path(work_dir), arms, tuple(plan['seeds']), plan['margin'], plan['alpha'], allow_software=True)


def parts(verdicts: Sequence[Verdict]) -> list[Part]:
    """Return the verdicts of a report, and the intervals as they narrowed."""
    rows = [
        (
            verdict.arm,
            look.n,
            f'{look.mean:+.2f}',
            f'{look.low:+.2f} to {look.high:+.2f}',
            look.decision or 'undecided',
        )
        for verdict in verdicts
        for look in verdict.looks
    ]
    fixed = [
        f'{verdict.arm}: {verdict.fixed} seeds in each arm find a difference of the margin with 80 % power in one '
        'test at the end, by the spread here'
        for verdict in verdicts
        if verdict.fixed
    ]
    table = text_table(('arm', 'seeds', 'difference', 'interval that holds at every look', 'decision'), rows, 1)
    return [Part('list', [*map(str, verdicts), *fixed]), Part('table', table, 'Seed by seed')]


def exit_status(verdicts: Sequence[Verdict]) -> int:
    """Return 0 if every arm is decided and one is better, 1 if every one is decided and none is, else 2."""
    if not all(verdict.decision for verdict in verdicts):
        return UNDECIDED
    return BETTER if any(verdict.decision == 'better' for verdict in verdicts) else NOT_BETTER


def as_json(verdicts: Sequence[Verdict]) -> str:
    """Return the verdicts on one line."""
    rows = []
    for verdict in verdicts:
        last = asdict(verdict.looks[-1]) if verdict.looks else {}
        about = dict(arm=verdict.arm, baseline=verdict.baseline, metric=verdict.metric, most=verdict.most)
        rows.append({**last, **about, 'decision': verdict.decision or 'undecided'})
    return json.dumps(rows)

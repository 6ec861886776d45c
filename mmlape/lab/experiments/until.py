"""A study that stops when it knows: its plan in the work dir, and what the runs there have decided."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from mmlape.console.page import Element
from mmlape.console.tables import text_table
from mmlape.errors import ConfigError, listed
from mmlape.files import read_json, write_json
from mmlape.lab.decoding import UNSTORED, Seed, decode, encode
from mmlape.lab.evaluation.metric_names import label
from mmlape.lab.experiments.report.arms import average
from mmlape.lab.experiments.sequential import Look, SequentialPlan, looks
from mmlape.lab.experiments.statistics import DECISIONS, LEAST, pooled, seeds_needed
from mmlape.lab.runs.run import Run, read_seeds
from mmlape.lab.runs.schema import ENDED

FILE = 'until.json'
"""In the work dir: the plan, as it was fixed before the first seed."""
FIRST = 121
"""The first seed, if none are named; the others follow it."""
BETTER, NOT_BETTER, UNDECIDED = 0, 1, 2
"""Exit statuses."""


@dataclass(frozen=True)
class UntilStudy:
    """Arms that are compared with the first one, seed by seed, until each comparison is decided.

    Attributes:
        baseline: The name of the first one.
        arms: Those of the others.
        seeds: In their order, which nobody chooses afterwards.
        margin: As of `SequentialPlan`, in points.
        alpha: As of `SequentialPlan`, of the complete study.
        work_dir: Holds ``<arm>/seed_<S>``, and the other attributes as ``until.json``.
        allow_software: As in `averages.check_repeats`.
    """

    baseline: str
    arms: list[str]
    seeds: list[Seed]
    margin: float
    alpha: float = 0.05
    work_dir: Path = field(default=Path(), metadata=UNSTORED)
    allow_software: bool = field(default=False, metadata=UNSTORED)

    @property
    def plan(self) -> SequentialPlan:
        """Return the plan of each comparison."""
        return SequentialPlan(self.margin, len(self.seeds), self.alpha, len(self.arms))

    def fix(self, write: bool = True) -> None:
        """Record the plan before the first seed; a later call must have the same.

        Args:
            write: Whether to record it, or only to check it.

        Raises:
            ConfigError: It has fewer than two arms or three seeds, values out of range, is not the recorded one, or is
                new and seeds of it have results.
            DataError: The recorded one cannot be read.
        """
        if not self.arms:
            raise ConfigError(f'--until compares arms with the first one, and {self.baseline} is alone: name another')
        self.plan  # noqa: B018  (checks its values)
        path, mine = self.work_dir / FILE, encode(self)
        recorded = read_json(path)
        if recorded is None:
            runs = [(arm, run) for arm, runs in self._runs().items() for run in runs]
            if known := [f'{name}, seed {run.seed}' for name, run in runs if run.last]:
                raise ConfigError(
                    f'--until: a plan that is made beside results decides nothing, and {self.work_dir} has those of '
                    f'{listed(known, 3)}: give another --work-dir, or --seeds that are new'
                )
            if write:
                write_json(path, mine)
            return
        recorded = encode(decode(UntilStudy, recorded, path))
        changed = [f'{key}: {value} -> {mine[key]}' for key, value in recorded.items() if mine[key] != value]
        if changed:
            raise ConfigError(
                f'{path} fixed the plan before the first seed ({", ".join(changed)}): a plan that follows the '
                'results decides nothing; give the same one, or another --work-dir'
            )

    def _runs(self) -> dict[str, list[Run]]:
        """Return the runs of each arm, the baseline first, in the order of the seeds."""
        return {name: read_seeds(self.work_dir / name, self.seeds) for name in (self.baseline, *self.arms)}

    def verdicts(self) -> list['Verdict']:
        """Return what is known of each arm but the baseline.

        Finished seeds count, in their order, up to the first one that is not: neither a failure nor a run that ends
        early chooses, and a decision stays when a failed seed is trained again.
        """
        runs = self._runs()
        results = [average(name, of_arm, allow_software=self.allow_software) for name, of_arm in runs.items()]
        metrics = {result.name: result.metrics[0] for result in results if result.counted and result.metrics}
        if len(set(metrics.values())) > 1:
            named = ', '.join(f'{name} {metric}' for name, metric in metrics.items())
            raise ConfigError(f'--until: the arms have other metrics ({named}): compare arms of one task')
        metric = next(iter(metrics.values()), '')
        values = {result.name: result.values('last', metric) for result in results}
        verdicts = []
        for name in self.arms:
            found = tuple(looks(self.plan, values[name], values[self.baseline], self.seeds))
            spread = pooled([list(values[arm].values()) for arm in (name, self.baseline)])
            fixed = seeds_needed(self.margin, spread.std) if spread and spread.std else None
            held = _held([(runs[arm], values[arm]) for arm in (self.baseline, name)])
            verdicts.append(Verdict(name, self.baseline, metric, len(self.seeds), found, fixed, held))
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
    held: Run | None = None  # the run that has ended without a result, which those behind it wait for

    @property
    def decision(self) -> str:
        """Return 'better', 'worse', 'equal' or ''."""
        return self.looks[-1].decision if self.looks else ''

    def __str__(self) -> str:
        state = f'fewer than {LEAST} of at most {self.most} seeds have finished'
        if self.looks:
            last = self.looks[-1]
            difference = f'{label(self.metric)} {last.mean:+.2f} ({last.interval})'
            state = f'{difference}, {last.n} of at most {self.most} seeds'
        held = ''
        if self.held and not self.decision:
            how = 'move its folder away to train it again' if self.held.finished else 'multi-seed trains it again'
            name = self.held.folder.parent.name
            held = f'; the seeds behind {name}, seed {self.held.seed}, wait for it ({self.held.outcome}): {how}'
        return f'{self.arm} {DECISIONS[self.decision]} {self.baseline}: {state}{held}'


def _held(arms: Sequence[tuple[Sequence[Run], Mapping[int, float]]]) -> Run | None:
    """Return the first run without a result of a pair of arms, if it has ended."""
    pairs = zip(*([(run, run.seed in values) for run in runs] for runs, values in arms), strict=True)
    first = next((pair for pair in pairs if not all(counts for _, counts in pair)), ())
    return next((run for run, counts in first if not counts and (run.finished or run.state in ENDED)), None)


def read_until(work_dir: str | Path) -> UntilStudy | None:
    """Return the study whose plan is in a work dir; None if there is none."""
    path = Path(work_dir) / FILE
    study = decode(UntilStudy, read_json(path), path)
    return study and replace(study, work_dir=Path(work_dir), allow_software=True)


def parts(verdicts: Sequence[Verdict]) -> list[Element]:
    """Return the verdicts of a report, and the intervals as they narrowed."""
    rows = [
        (verdict.arm, look.n, f'{look.mean:+.2f}', look.interval, look.decision or 'undecided')
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
    others = (
        'Intervals and p of other tables are of a number of seeds that is fixed beforehand: here the verdicts hold.'
    )
    return [Element([*map(str, verdicts), *fixed, others]), Element(table, 'Seed by seed')]


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

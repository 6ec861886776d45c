"""What a report says, whatever its format: averages in points, comparisons, cost and origin of every arm."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from mmlape.engine.identity import differences, software_differences
from mmlape.errors import ConfigError
from mmlape.experiments.aggregate import EVALUATIONS, summarise
from mmlape.experiments.metrics import TASKS, is_defined, points, task_of
from mmlape.experiments.report.paper import Known, Model, describe, known
from mmlape.experiments.runs import Run
from mmlape.experiments.statistics import Difference, holm, paired, welch

_SCALED = ('mean', 'std', 'low', 'high')
_OF_ARMS = ('config:', 'checkpoint:', 'seed:')
"""How the lines about two runs begin in which arms may differ: it is what they are compared for."""


@dataclass(frozen=True)
class Arm:
    """One side of a comparison.

    Args:
        name: As in the tables and in the curves' legend.
        runs: Its runs, from `runs.read_seeds` or `runs.read_arms`.
        task: 'detection', 'segmentation' or 'classification'; by default told from the metrics.
        metrics: Which to compare by; by default the task's.
        untrained: The same metrics before training as the metric returned them, where they were measured.
    """

    name: str
    runs: Sequence[Run]
    task: str | None = None
    metrics: Sequence[str] = ()
    untrained: dict[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """What is known of an arm; every value is in points.

    Attributes:
        arm: The arm.
        task: Its task; None if it is not known.
        metrics: Which it is compared by.
        summary: As `aggregate.summarise` returns it, in points.
        model: Its name in the paper's words.
        known: What the metafiles say of its config; None if they do not have it.
    """

    arm: Arm
    task: str | None
    metrics: tuple[str, ...]
    summary: dict
    model: Model
    known: Known | None

    @property
    def name(self) -> str:
        return self.arm.name

    @property
    def counted(self) -> list[Run]:
        """The runs that are averaged."""
        return [run for run in self.arm.runs if run.counts]

    @property
    def identity(self) -> dict:
        """The identity that its averaged runs share; empty if they have none."""
        return next((run.identity for run in self.counted if run.identity), {})

    def values(self, which: str, metric: str, name: str | None = None) -> dict[int, float]:
        """``{seed: value}`` of a metric at 'last' or 'best', or of one of its classes."""
        rows = self.summary[which]['metrics'] if name is None else self.summary[which]['per_class'].get(metric, {})
        entry = rows.get(metric if name is None else name)
        return {int(seed): value for seed, value in entry['values'].items()} if entry else {}


@dataclass(frozen=True)
class Comparison:
    """Two arms and a metric, or one of its classes.

    Attributes:
        arm, baseline: Their names.
        which: 'last' or 'best'.
        metric: Its key.
        name: The class; None for the metric itself.
        welch: Of all seeds of either.
        paired: Of the seeds that they have in common.
    """

    arm: str
    baseline: str
    which: str
    metric: str
    name: str | None
    welch: Difference
    paired: Difference


@dataclass(frozen=True)
class Report:
    """A report's contents.

    Attributes:
        title: Its heading.
        results: The arms.
        comparisons: Of the metrics, at 'last' and at 'best'; each of the two is a family of Holm's correction.
        classes: Of single classes at 'last'; a pair of arms and a metric is a family.
        warnings: What makes a comparison doubtful.
        introduction: A paragraph before everything else.
        notes: Sentences after the first table.
        pictures: Caption and files.
    """

    title: str
    results: list[Result]
    comparisons: list[Comparison]
    classes: list[Comparison]
    warnings: list[str]
    introduction: str = ''
    notes: tuple[str, ...] = ()
    pictures: dict[str, list[Path]] = field(default_factory=dict)

    @property
    def excluded(self) -> list[str]:
        """The runs that are not counted, and why."""
        return [
            f'{result.name}, seed {seed}: {outcome}'
            for result in self.results
            for seed, outcome in result.summary['unfinished'].items()
        ]

    def result(self, name: str) -> Result:
        """The arm of a name."""
        return next(result for result in self.results if result.name == name)

    @property
    def pairs(self) -> list[tuple[Result, Result]]:
        """The arms that are compared, each with its baseline."""
        names = dict.fromkeys((one.arm, one.baseline) for one in self.comparisons)
        return [(self.result(arm), self.result(baseline)) for arm, baseline in names]


def build(
    arms: Sequence[Arm], title: str, baseline: str | None = None, allow_software: bool = False, **more
) -> Report:
    """Averages arms and compares them.

    Args:
        arms: At least one.
        title: The report's.
        baseline: The arm that all others of its task are compared with. By default every arm is compared with the
            arm of the same model that has the default PE, or the first of that model where none has; where settings
            are not recorded, with the first of its task.
        allow_software: Whether runs of one arm may differ in code and stack.
        **more: ``introduction``, ``notes`` and ``pictures`` of `Report`.

    Raises:
        DataError: Runs of an arm are no repeats of each other.
        ConfigError: There is no arm of the baseline's name, or two arms have one name.
    """
    names = [arm.name for arm in arms]
    if len(set(names)) < len(names):
        raise ConfigError(f'two arms of one name: {names}')
    if baseline is not None and baseline not in names:
        raise ConfigError(f'--baseline {baseline}: no such arm; there are: {", ".join(names)}')
    results = [average(arm, allow_software) for arm in arms]
    pairs = list(_pairs(results, baseline))
    comparisons = [one for which in EVALUATIONS for one in _corrected(_compare(pairs, which))]
    classes = [one for pair in pairs for one in _classes(*pair)]
    return Report(title, results, comparisons, classes, list(_warnings(results, pairs)), **more)


def average(arm: Arm, allow_software: bool = False) -> Result:
    """Averages an arm.

    Raises:
        DataError: Its runs are no repeats of each other.
    """
    summary = summarise(arm.runs, allow_software)
    for which in EVALUATIONS:
        part = summary[which]
        part['metrics'] = {name: _in_points(name, entry) for name, entry in part['metrics'].items()}
        part['per_class'] = {
            name: {one: _in_points(name, entry) for one, entry in rows.items()}
            for name, rows in part['per_class'].items()
        }
    found = [*summary['last']['metrics'], *summary['best']['metrics']]
    task = arm.task or task_of(found)
    metrics = arm.metrics or TASKS.get(task) or found[:1]
    metrics = [name for name in metrics if name in found] if found else metrics
    counted = next((run for run in arm.runs if run.counts), None)
    config = str(counted.record.get('config') or arm.name) if counted else arm.name
    return Result(
        arm,
        task,
        tuple(metrics),
        summary,
        describe(Path(config).stem, counted.identity if counted else None),
        known(config),
    )


def _in_points(metric: str, entry: dict) -> dict:
    """An average in points."""
    scaled = {key: None if entry[key] is None else points(metric, entry[key]) for key in _SCALED}
    return {**entry, **scaled, 'values': {seed: points(metric, value) for seed, value in entry['values'].items()}}


def untrained(result: Result, metric: str) -> float | None:
    """The value of a metric before training, in points; None if it was not measured."""
    value = result.arm.untrained.get(metric)
    return points(metric, value) if is_defined(metric, value) else None


def _pairs(results: Sequence[Result], baseline: str | None) -> Iterator[tuple[Result, Result]]:
    """Every arm that has something to be compared with, and that."""
    for result in results:
        rivals = [other for other in results if set(other.metrics) & set(result.metrics)]
        if baseline is not None:
            chosen = next((other for other in rivals if other.name == baseline), None)
        else:
            described = result.identity.get('settings') is not None
            same = [other for other in rivals if not described or other.model.name == result.model.name]
            chosen = next((other for other in same if other.model.plain), same[0])
        if chosen is not None and chosen is not result:
            yield result, chosen


def _compare(pairs: Sequence[tuple[Result, Result]], which: str) -> list[Comparison]:
    return [
        _comparison(arm, other, which, metric)
        for arm, other in pairs
        for metric in arm.metrics
        if metric in other.metrics
    ]


def _comparison(arm: Result, other: Result, which: str, metric: str, name: str | None = None) -> Comparison:
    mine, theirs = (result.values(which, metric, name) for result in (arm, other))
    difference = welch(list(mine.values()), list(theirs.values()))
    return Comparison(arm.name, other.name, which, metric, name, difference, paired(mine, theirs))


def _classes(arm: Result, other: Result) -> list[Comparison]:
    """The classes' differences at 'last', those that gain most first."""
    found = []
    for metric in class_metrics(arm):
        names = [
            name for name in arm.summary['last']['per_class'][metric]
            if arm.values('last', metric, name) and other.values('last', metric, name)
        ]  # fmt: skip
        family = _corrected([_comparison(arm, other, 'last', metric, name) for name in names])
        found += sorted(family, key=lambda one: -one.welch.mean)
    return found


def class_metrics(result: Result) -> list[str]:
    """The metrics that a task compares classes by: IoU, or box and mask AP; accuracies of classes are data only."""
    return [name for name in result.summary['last']['per_class'] if name in ('IoU', 'bbox_AP', 'segm_AP')]


def _corrected(family: Sequence[Comparison]) -> list[Comparison]:
    """Holm's correction of a family, of Welch's p and of the paired p apart."""
    corrected = (holm([getattr(one, kind) for one in family]) for kind in ('welch', 'paired'))
    return [replace(one, welch=first, paired=second) for one, first, second in zip(family, *corrected)]


def _warnings(results: Sequence[Result], pairs: Sequence[tuple[Result, Result]]) -> Iterator[str]:
    """What a reader must know before believing a number."""
    for result in results:
        if result.counted and not result.identity:
            yield f'{result.name}: an older version wrote its records; what its runs have in common was not checked.'
        if result.identity:
            apart = [software_differences(result.identity, run.identity) for run in result.counted]
            lines = dict.fromkeys(line for found in apart for line in found)
            if lines:
                yield f'{result.name}: the software changed between its runs: {"; ".join(lines)}.'
        policy = result.identity.get('batch_policy')
        if policy == 'allowed-mismatch':
            yield f"{result.name}: its total batch is not the recipe's, and nothing was adapted to it."
    for arm, other in pairs:
        if not (arm.identity and other.identity):
            continue
        lines = differences(other.identity, arm.identity, for_resume=False)
        lines = [line for line in lines if not line.startswith(_OF_ARMS)]
        if lines:
            yield f'{arm.name} and {other.name} differ in more than their settings: {"; ".join(lines)}.'

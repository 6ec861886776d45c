"""The arms of a report, averaged: every value in points."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mmlape.evaluation.names import TASK_METRICS, is_defined, points, task_of
from mmlape.experiments.averages import EVALUATIONS, summarise
from mmlape.experiments.report.paper import Known, Model, describe, known
from mmlape.runs.run import Run

_SCALED = ('mean', 'std', 'low', 'high')


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
        known: What the metafiles say of its config; None if they do not have it, or its model is another one.
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
    metrics = arm.metrics or TASK_METRICS.get(task) or found[:1]
    metrics = [name for name in metrics if name in found] if found else metrics
    counted = next((run for run in arm.runs if run.counts), None)
    config = str(counted.record.get('config') or arm.name) if counted else arm.name
    return Result(
        arm,
        task,
        tuple(metrics),
        summary,
        describe(Path(config).stem, counted.identity if counted else None),
        known(config, counted.cost.get('parameters') if counted else None),
    )


def _in_points(metric: str, entry: dict) -> dict:
    """An average in points."""
    scaled = {key: None if entry[key] is None else points(metric, entry[key]) for key in _SCALED}
    return {**entry, **scaled, 'values': {seed: points(metric, value) for seed, value in entry['values'].items()}}


def untrained(result: Result, metric: str) -> float | None:
    """The value of a metric before training, in points; None if it was not measured."""
    value = result.arm.untrained.get(metric)
    return points(metric, value) if is_defined(metric, value) else None

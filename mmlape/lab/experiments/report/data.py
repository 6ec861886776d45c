"""The numbers of a report: what ``report.json`` holds, and the three CSV tables, which are views of it.

All values are in points.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, fields
from typing import Any

from mmlape.lab.decoding import encode
from mmlape.lab.experiments.averages import EVALUATIONS, Average, Evaluations
from mmlape.lab.experiments.report.arms import ArmResult
from mmlape.lab.experiments.report.content import Report
from mmlape.lab.experiments.statistics import CONFIDENCE
from mmlape.lab.extension import PaperModel
from mmlape.lab.runs.schema import Cost


@dataclass(frozen=True)
class CostData:
    """What the runs of an arm took.

    Attributes:
        parameters: Of the model, as a run counted them, else as published.
        flops: Of the config as published, for one image.
        flops_of_size: Height and width of that image.
        gpu_hours: Of all runs, including those that do not count.
        runs: The cost that each run has recorded, by seed.
    """

    parameters: int | None
    flops: int | None
    flops_of_size: Sequence[int] | None
    gpu_hours: float | None
    runs: Mapping[int, Mapping[str, Any]]


@dataclass(frozen=True)
class ArmData:
    """An arm: what it is, its averages, its cost.

    Attributes:
        title: What its study calls it; empty if it has no other name.
        task: 'detection', 'segmentation' or 'classification'; null if unknown.
        metrics: Those that arms are compared by.
        data_fraction: The share of the training images that it was trained on.
        model: The papers' names of its model.
        paper: The papers' figures by metric, as printed.
        untrained: The values before training by metric, where they were measured.
        seeds: Of the runs that are averaged.
        unfinished: Why a run is not averaged, by seed.
        key: The metric that the best evaluation of a run is picked by.
        last: The averages of the evaluations after the last iteration, or of what was measured afterwards.
        best: The averages of the best evaluations.
        cost: What the runs took.
        identity: What its runs were trained from, with and on, without the settings.
    """

    title: str
    task: str | None
    metrics: Sequence[str]
    data_fraction: float
    model: PaperModel
    paper: Mapping[str, str]
    untrained: Mapping[str, float | None]
    seeds: Sequence[int]
    unfinished: Mapping[int, str]
    key: str | None
    last: Evaluations
    best: Evaluations
    cost: CostData
    identity: Mapping[str, Any]


@dataclass(frozen=True)
class ComparisonData:
    """A test of the difference of two arms; a row of ``comparisons.csv``.

    Attributes:
        arm: The arm.
        baseline: What it is compared with.
        which: 'last' or 'best'.
        metric: The metric.
        class_: One of its classes; null for the metric itself. Its key is ``class``.
        test: 'welch', of all seeds of either arm, or 'paired', of those that they have in common.
        n_arm: How many values the arm has.
        n_baseline: How many values the baseline has.
        mean: The difference, the arm minus the baseline.
        low: The lower end of its 95 % interval.
        high: The upper end.
        p: Two-sided, of no difference.
        holm: ``p`` after Holm's correction.
        note: Why there is neither interval nor ``p``.
    """

    arm: str
    baseline: str
    which: str
    metric: str
    class_: str | None
    test: str
    n_arm: int
    n_baseline: int
    mean: float | None
    low: float | None
    high: float | None
    p: float | None
    holm: float | None
    note: str | None


@dataclass(frozen=True)
class ReportData:
    """A report.

    Attributes:
        title: The heading.
        unit: Of all values.
        confidence: Of all intervals.
        arms: The arms by name.
        comparisons: The tests of their differences.
        not_counted: The runs that are not averaged, a line each.
        warnings: Reasons to doubt a comparison.
        notes: How the values came about, a sentence each.
    """

    title: str
    unit: str
    confidence: float
    arms: Mapping[str, ArmData]
    comparisons: Sequence[ComparisonData]
    not_counted: Sequence[str]
    warnings: Sequence[str]
    notes: Sequence[str]

    def as_json(self) -> dict:
        """Return it as ``report.json`` has it: nested dicts."""
        return asdict(self, dict_factory=_without_underscores)

    def values(self) -> Iterator[tuple]:
        """Yield the rows of ``values.csv``: each value of each run."""
        for arm, which, metric, name, average in self._averages():
            steps = getattr(self.arms[arm], which).steps
            for seed, value in average.values.items():
                yield arm, seed, which, steps.get(seed), metric, name, value

    def estimates(self) -> Iterator[tuple]:
        """Yield the rows of ``estimates.csv``: each average."""
        for *where, average in self._averages():
            yield *where, *(getattr(average, name) for name in _MOMENTS)

    def _averages(self) -> Iterator[tuple[str, str, str, str | None, Average]]:
        """Yield arm, 'last' or 'best', metric, class (None for the metric itself) and the average."""
        for arm, entry in self.arms.items():
            for which in EVALUATIONS:
                evaluations: Evaluations = getattr(entry, which)
                for metric, average in evaluations.metrics.items():
                    yield arm, which, metric, None, average
                for metric, classes in evaluations.per_class.items():
                    for name, average in classes.items():
                        yield arm, which, metric, name, average


_MOMENTS = ('mean', 'std', 'n', 'low', 'high', 'note')
CSV_COLUMNS = {
    'values': ('arm', 'seed', 'which', 'step', 'metric', 'class', 'value'),
    'estimates': ('arm', 'which', 'metric', 'class', *_MOMENTS),
    'comparisons': tuple(field.name.removesuffix('_') for field in fields(ComparisonData)),
}
"""The columns of the CSV tables by name."""


def csv_rows(data: ReportData) -> dict[str, list[tuple]]:
    """Return the rows of the CSV tables by name."""
    return {
        'values': list(data.values()),
        'estimates': list(data.estimates()),
        'comparisons': [astuple(one) for one in data.comparisons],
    }


def _without_underscores(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Build a dict; 'class', a word of Python, is the field ``class_``."""
    return {key.removesuffix('_'): value for key, value in pairs}


def report_data(report: Report) -> ReportData:
    """Return the numbers of a report."""
    return ReportData(
        report.title,
        'points (AP times 100, percent)',
        CONFIDENCE,
        {result.name: _arm(result) for result in report.results},
        list(_comparisons(report)),
        report.excluded,
        report.warnings,
        list(report.notes),
    )


def _arm(result: ArmResult) -> ArmData:
    summary, paper = result.summary, result.paper
    cost = CostData(
        result.parameters,
        paper.flops if paper else None,
        list(paper.size) if paper else None,
        result.gpu_hours,
        {run.seed: encode(run.cost) if run.cost != Cost() else {} for run in result.arm.runs},
    )
    return ArmData(
        title=result.title,
        task=result.task,
        metrics=list(result.metrics),
        data_fraction=float(result.fraction),
        model=result.model,
        paper=paper.results if paper else {},
        untrained={metric: result.untrained(metric) for metric in result.arm.untrained},
        seeds=summary.seeds,
        unfinished=summary.unfinished,
        key=summary.key,
        last=summary.last,
        best=summary.best,
        cost=cost,
        identity=encode(result.identity) if result.identity else {},
    )


def _comparisons(report: Report) -> Iterator[ComparisonData]:
    for pair in (*report.comparisons, *report.classes):
        for test, found in (('welch', pair.welch), ('paired', pair.paired)):
            yield ComparisonData(
                arm=pair.arm,
                baseline=pair.baseline,
                which=pair.which,
                metric=pair.metric,
                class_=pair.name,
                test=test,
                n_arm=found.n[0],
                n_baseline=found.n[1],
                mean=found.mean,
                low=found.low,
                high=found.high,
                p=found.p,
                holm=found.holm,
                note=found.note,
            )

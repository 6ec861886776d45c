"""The comparisons of a report: which arms, by which metrics and classes, and which of them are a family."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from mmlape.experiments.report.arms import Result
from mmlape.experiments.statistics import Difference, holm, paired, welch


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


def pairs_of(results: Sequence[Result], baseline: str | None) -> Iterator[tuple[Result, Result]]:
    """Every arm that has something to be compared with, and that."""
    for result in results:
        rivals = [other for other in results if set(other.metrics) & set(result.metrics)]
        if baseline is not None:
            chosen = next((other for other in rivals if other.name == baseline), None)
        else:
            described = result.identity.get('settings') is not None
            same = [other for other in rivals if not described or other.model.name == result.model.name]
            chosen = next((other for other in same if other.model.plain), next(iter(same), None))
        if chosen is not None and chosen is not result:
            yield result, chosen


def compare(pairs: Sequence[tuple[Result, Result]], which: str) -> list[Comparison]:
    """The metrics that pairs of arms have in common at 'last' or at 'best': a family of Holm's correction."""
    return _corrected([
        _comparison(arm, other, which, metric)
        for arm, other in pairs
        for metric in arm.metrics
        if metric in other.metrics
    ])  # fmt: skip


def _comparison(arm: Result, other: Result, which: str, metric: str, name: str | None = None) -> Comparison:
    mine, theirs = (result.values(which, metric, name) for result in (arm, other))
    difference = welch(list(mine.values()), list(theirs.values()))
    return Comparison(arm.name, other.name, which, metric, name, difference, paired(mine, theirs))


def compare_classes(arm: Result, other: Result) -> list[Comparison]:
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

"""The comparisons of a report: which arms, by which metrics and classes, and which of them are a family."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from mmlape.experiments.report.arms import ArmResult
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


def pairs_of(results: Sequence[ArmResult], baseline: str | None) -> Iterator[tuple[ArmResult, ArmResult]]:
    """Yield every arm that has a baseline, with its baseline."""
    for result in results:
        rivals = [other for other in results if set(other.metrics) & set(result.metrics)]
        if baseline is not None:
            chosen = next((other for other in rivals if other.name == baseline), None)
        else:
            if result.model.named:
                same = [other for other in rivals if other.model.name == result.model.name]
            else:  # a lone one is compared with a model of the papers
                same = [other for other in rivals if not other.model.named]
                same = same if len(same) > 1 else rivals
            same = [other for other in same if other.fraction == result.fraction]
            chosen = next((other for other in same if other.model.plain), next(iter(same), None))
        if chosen is not None and chosen is not result:
            yield result, chosen


def compare(pairs: Sequence[tuple[ArmResult, ArmResult]], which: str) -> list[Comparison]:
    """Compare the common metrics of pairs of arms at 'last' or at 'best': a family of Holm's correction."""
    return _corrected([
        _comparison(arm, other, which, metric)
        for arm, other in pairs
        for metric in arm.metrics
        if metric in other.metrics
    ])  # fmt: skip


def _comparison(arm: ArmResult, other: ArmResult, which: str, metric: str, name: str | None = None) -> Comparison:
    mine, theirs = (result.values(which, metric, name) for result in (arm, other))
    difference = welch(list(mine.values()), list(theirs.values()))
    return Comparison(arm.name, other.name, which, metric, name, difference, paired(mine, theirs))


def compare_classes(arm: ArmResult, other: ArmResult) -> list[Comparison]:
    """Compare the classes of two arms at 'last', the largest gain first."""
    compared = []
    for metric in class_metrics(arm):
        names = [
            name for name in arm.summary['last']['per_class'][metric]
            if arm.values('last', metric, name) and other.values('last', metric, name)
        ]  # fmt: skip
        family = _corrected([_comparison(arm, other, 'last', metric, name) for name in names])
        compared += sorted(family, key=lambda pair: -pair.welch.mean)
    return compared


def class_metrics(result: ArmResult) -> list[str]:
    """Return the metrics by which classes are compared: IoU, box AP, mask AP; class accuracies are data only."""
    return [name for name in result.summary['last']['per_class'] if name in ('IoU', 'bbox_AP', 'segm_AP')]


def _corrected(family: Sequence[Comparison]) -> list[Comparison]:
    """Correct the p values of a family by Holm, Welch's and the paired ones apart."""
    corrected = (holm([getattr(pair, kind) for pair in family]) for kind in ('welch', 'paired'))
    return [replace(pair, welch=first, paired=second) for pair, first, second in zip(family, *corrected)]

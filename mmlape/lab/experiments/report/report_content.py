"""The content of a report in any format: averages, comparisons, and warnings about them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from mmlape.console.page import Element
from mmlape.errors import ConfigError
from mmlape.lab.evaluation.metric_names import label
from mmlape.lab.experiments.averages import EVALUATIONS
from mmlape.lab.experiments.report.arms import ArmResult
from mmlape.lab.experiments.statistics import Difference, holm, paired, welch
from mmlape.lab.extension import advice_on_pretraining
from mmlape.lab.runs.identity import differences, known_provenance, software_differences

_CLASS_METRICS = ('IoU', 'bbox_AP', 'segm_AP')
"""The metrics by which classes are compared; class accuracies are data only."""


@dataclass(frozen=True)
class Comparison:
    """Two arms and a metric at 'last' or 'best', or one of its classes.

    Attributes:
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
    """Compare the common metrics of pairs of arms at 'last' or at 'best'.

    They are a family of Holm's correction.
    """
    return _corrected([
        _comparison(arm, other, which, metric)
        for arm, other in pairs
        for metric in arm.metrics
        if metric in other.metrics and (arm.summary.at(which).n or other.summary.at(which).n)
    ])  # fmt: skip


def _comparison(arm: ArmResult, other: ArmResult, which: str, metric: str, name: str | None = None) -> Comparison:
    mine, theirs = (result.values(which, metric, name) for result in (arm, other))
    difference = welch(list(mine.values()), list(theirs.values()))
    return Comparison(arm.name, other.name, which, metric, name, difference, paired(mine, theirs))


def compare_classes(arm: ArmResult, other: ArmResult) -> list[Comparison]:
    """Compare the classes of two arms at 'last', the largest gain first."""
    compared = []
    for metric in arm.summary.last.per_class:
        if metric not in _CLASS_METRICS:
            continue
        names = [
            name for name in arm.summary.last.per_class[metric]
            if arm.values('last', metric, name) and other.values('last', metric, name)
        ]  # fmt: skip
        family = _corrected([_comparison(arm, other, 'last', metric, name) for name in names])
        compared += sorted(family, key=lambda pair: -pair.welch.mean)
    return compared


def _corrected(family: Sequence[Comparison]) -> list[Comparison]:
    """Correct the p values of a family by Holm, Welch's and the paired ones apart."""
    corrected = (holm([getattr(pair, test) for pair in family]) for test in ('welch', 'paired'))
    return [replace(pair, welch=first, paired=second) for pair, first, second in zip(family, *corrected)]


_MAX_LENGTH = 60
"""Characters that the names of a pair may have together in a table."""
_OF_ARMS = ('config:', 'checkpoint:', 'seed:')
"""Prefixes of the differences that arms are compared for."""


@dataclass(frozen=True)
class Report:
    """The content of a report.

    Attributes:
        pairs: The arms that are compared, each with its baseline.
        comparisons: Of the metrics, at 'last' and at 'best'; each of the two is a family of Holm's
            correction.
        classes: Of single classes at 'last'; a pair of arms and a metric is a family.
        warnings: Reasons to doubt a comparison.
        baseline: The baseline that was given; None if each arm's was chosen by default.
        introduction: A paragraph before everything else.
        notes: Sentences after the first table.
        first: Tables and figures before the table of results.
        images: Files by caption.
    """

    title: str
    results: list[ArmResult]
    pairs: list[tuple[ArmResult, ArmResult]]
    comparisons: list[Comparison]
    classes: list[Comparison]
    warnings: list[str]
    baseline: str | None = None
    introduction: str = ''
    notes: tuple[str, ...] = ()
    images: dict[str, list[Path]] = field(default_factory=dict)
    first: Sequence[Element] = ()

    @property
    def has_best(self) -> bool:
        """Whether an arm has evaluations of which the best are picked."""
        return any(result.summary.best.n for result in self.results)

    @property
    def baselines(self) -> dict[str, list[str]]:
        """The names of the baselines, each with those of the arms that are compared with it."""
        arms: dict[str, list[str]] = {}
        for arm, other in self.pairs:
            arms.setdefault(other.name, []).append(arm.name)
        return arms

    @property
    def baseline_line(self) -> str:
        """Which baselines there are, and whether they were chosen by default.

        Empty if there are none.
        """
        several = len(self.baselines) > 1
        named = '; '.join(name + f' (of {", ".join(arms)})' * several for name, arms in self.baselines.items())
        how = '' if self.baseline else ' Chosen by default; --baseline names another.'
        return f'Baseline{"s" * several}: {named}.{how}' if named else ''

    @property
    def excluded(self) -> list[str]:
        """The runs that do not count, with the reason."""
        return [
            f'{result.name}, seed {seed}: {outcome}'
            for result in self.results
            for seed, outcome in result.summary.unfinished.items()
        ]

    def comparisons_at(self, which: str) -> list[Comparison]:
        """Return the comparisons at 'last' or at 'best'."""
        return [pair for pair in self.comparisons if pair.which == which]

    def title_of(self, arm: str, baseline: str) -> str:
        """Return the name of a pair: its arms' names, or, if they are long, the paper's if these are unique."""
        if len(arm) + len(baseline) <= _MAX_LENGTH:
            return f'{arm} − {baseline}'
        titles = {(arm.name, other.name): _paper_title(arm, other) for arm, other in self.pairs}
        title = titles[arm, baseline]
        return title if title and list(titles.values()).count(title) == 1 else f'{arm} − {baseline}'

    def result(self, name: str) -> ArmResult:
        """Return the arm of a name."""
        return next(result for result in self.results if result.name == name)


def _paper_title(arm: ArmResult, other: ArmResult) -> str | None:
    """Return 'Seg-T-Mask/16: LaPE − Default'; None for arms of two models, or of one method."""
    ours, theirs = arm.model, other.model
    images = f', {arm.fraction} of the images' if arm.fraction == other.fraction != 1 else ''
    alike = ours.name == theirs.name and ours.method != theirs.method
    return f'{ours.name}: {ours.method} − {theirs.method}{images}' if alike else None


def build(results: Sequence[ArmResult], title: str, baseline: str | None = None, **more) -> Report:
    """Compare arms.

    Args:
        results: At least one.
        title: The heading.
        baseline: The arm that all others of its task are compared with. By default every arm is
            compared with the arm of the same model and fraction of the data that has the default
            PE, or the first of those if none has; if settings are not recorded, or the model is
            none of the papers' (one of timm's), with the first of its task.
        **more: ``introduction``, ``notes``, ``images`` and ``first`` of `Report`.

    Raises:
        ConfigError: No arm has the baseline's name, or two arms have the same name.
    """
    names = [result.name for result in results]
    if len(set(names)) < len(names):
        raise ConfigError(f'two arms of one name: {names}')
    if baseline is not None and baseline not in names:
        raise ConfigError(f'--baseline {baseline}: no such arm; there are: {", ".join(names)}')
    pairs = list(pairs_of(results, baseline))
    comparisons = [compared for which in EVALUATIONS for compared in compare(pairs, which)]
    classes = [compared for pair in pairs for compared in compare_classes(*pair)]
    return Report(title, list(results), pairs, comparisons, classes, list(_warnings(results, pairs)), baseline, **more)


def _warnings(results: Sequence[ArmResult], pairs: Sequence[tuple[ArmResult, ArmResult]]) -> Iterator[str]:
    """Yield the warnings that readers need beside the numbers."""
    for result in results:
        if result.counted and not result.identity:
            yield f'{result.name}: an older version wrote its records; its runs were not checked for equal settings.'
        if result.identity:
            apart = [software_differences(result.identity, run.identity) for run in result.counted]
            lines = dict.fromkeys(line for differing in apart for line in differing)
            if lines:
                yield f'{result.name}: the software changed between its runs: {"; ".join(lines)}.'
        for metric in result.metrics:
            values = result.values('last', metric)
            absent = ', '.join(str(seed) for seed in result.summary.seeds if seed not in values)
            if absent:
                yield f'{result.name}: {label(metric)} is undefined in the last evaluation of seed {absent}.'
        stopped = [run for run in result.counted if run.record.stopped]
        if stopped:
            seeds = '; '.join(f'seed {run.seed} {run.reason}' for run in stopped)
            yield f'{result.name}: runs that ended before their length count as finished: {seeds}.'
        if result.identity and result.identity.batch_policy == 'allow-batch-mismatch':
            yield f"{result.name}: its total batch is not the recipe's, and nothing was adapted to that."
        stored = (result.identity.settings or {}).get('cache_features') if result.identity else None
        if stored and not stored.get('per_seed'):
            yield (
                f'{result.name}: its seeds share {stored["views"]} views of each image, so that their spread leaves '
                'out the chance of the augmentations.'
            )
    for arm, other in pairs:
        if not (arm.identity and other.identity):
            continue
        starts = [result.identity.checkpoint for result in (other, arm)]
        provenances = [known_provenance(one.name, one.sha256) if one else None for one in starts]
        source = next((one.source for one in provenances if one), '')
        if source and not all(provenances):
            names = [
                f'{result.name} from {start.name if start else "no weights"}'
                for result, start in zip((other, arm), starts)
            ]
            which = f'one of them {source}: {", ".join(names)}{advice_on_pretraining()}.'
            yield f'Two pretrainings are compared, too, {which}'
        unequal = differences(other.identity, arm.identity, for_resume=False)
        unequal = [line for line in unequal if not line.startswith(_OF_ARMS)]
        if unequal:
            yield f'{arm.name} and {other.name} differ in more than their settings: {"; ".join(unequal)}.'

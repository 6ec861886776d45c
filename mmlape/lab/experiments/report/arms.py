"""The arms of a report, averaged, every value in points; and the papers' figures for them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

from mmlape.lab.evaluation.metric_names import KEYS, TASK_METRICS, task_of
from mmlape.lab.experiments.averages import Evaluations, Summary, average_values, summarise
from mmlape.lab.extension import PaperFigures, PaperModel, Quotation, first_answer
from mmlape.lab.runs.identity import recorded_model
from mmlape.lab.runs.run import Run
from mmlape.lab.runs.schema import Cost, Identity
from mmlape.lab.studies import Arm, find_arm


@dataclass(frozen=True)
class ArmResult:
    """An arm, averaged; every value is in points."""

    name: str  # in tables, and in the legend of curves
    runs: Sequence[Run]  # none of an arm that was measured after training
    task: str | None  # None if unknown
    metrics: tuple[str, ...]  # those to compare
    summary: Summary
    model: PaperModel  # the paper's name of its model
    # the entry of its config in the metafiles; None if there is none, or if its model is another
    # one
    paper: PaperFigures | None
    title: str = ''  # what its study calls it; empty if that is its name, or it is of none
    study: str = ''  # the title of its study; empty if it is of none

    @property
    def counted(self) -> list[Run]:
        """The runs that are averaged."""
        return [run for run in self.runs if run.counts]

    @property
    def first(self) -> Run | None:
        """The first run that is averaged; None if none counts."""
        return next(iter(self.counted), None)

    @property
    def identity(self) -> Identity | None:
        """The identity that its averaged runs share; None if they have none."""
        return next((run.identity for run in self.counted if run.identity), None)

    @property
    def settings(self) -> dict | None:
        """The settings of its averaged runs; None if they cannot be read."""
        return self.identity.settings if self.identity else None

    @property
    def fraction(self) -> Fraction:
        """The share of the training images that its runs were trained on."""
        return Fraction(self._data_fraction.get('share', 1))

    @property
    def fraction_seed(self) -> int | str | None:
        """What decided which images those are; None if they are all."""
        return self._data_fraction.get('seed')

    @property
    def _data_fraction(self) -> dict:
        return (self.settings or {}).get('data_fraction') or {}

    def values(self, which: str, metric: str, name: str | None = None) -> dict[int, float]:
        """Return ``{seed: value}`` of a metric at 'last' or 'best', or of one of its classes."""
        averaged = self.summary.at(which)
        rows = averaged.metrics if name is None else averaged.per_class.get(metric, {})
        entry = rows.get(metric if name is None else name)
        return dict(entry.values) if entry else {}

    @property
    def parameters(self) -> int | None:
        """The number of parameters: as a run counted them, else from the metafile."""
        counted = next((run.cost.parameters for run in self.counted if run.cost.parameters), None)
        return counted or (self.paper.parameters if self.paper else None)

    @property
    def gpu_hours(self) -> float | None:
        """The GPU hours of all runs, including those that do not count."""
        recorded = [run.cost.gpu_hours for run in self.runs if run.cost.gpu_hours is not None]
        return sum(recorded) if recorded else None

    def mean_cost(self, of: Callable[[Cost], float | None]) -> float | None:
        """Return the mean of a cost over the averaged runs; None if none recorded it."""
        recorded = [value for run in self.counted if (value := of(run.cost)) is not None]
        return sum(recorded) / len(recorded) if recorded else None


def average(
    name: str,
    runs: Sequence[Run] = (),
    metrics: Sequence[str] | None = None,
    measured: Mapping[int, Mapping[str, float]] | None = None,
    paper: PaperFigures | None = None,
    allow_software: bool = False,
) -> ArmResult:
    """Average an arm; DataError if its runs are not repeats of each other.

    Args:
        name: Of the arm.
        runs: From `runs.read_seeds` or `runs.read_arms`.
        metrics: Which to compare, as far as it has them; default: the task's.
        measured: Instead of runs, what was measured after training, in points: ``{seed: {metric: value}}``.
        paper: The papers' figures for it; default: those of its config.
        allow_software: As in `averages.check_repeats`.
    """
    if measured:
        summary = Summary(list(measured), last=Evaluations(len(measured), metrics=average_values(measured)))
    else:
        summary = summarise(runs, allow_software, in_points=True)
    found = [*summary.last.metrics, *summary.best.metrics]
    task = task_of(found)
    wanted = (TASK_METRICS.get(task) or found[:1]) if metrics is None else metrics
    first = next((run for run in runs if run.counts), None)
    config = str(first.record.config or name) if first else name
    arm = find_arm((first.record.study if first else None) or config) or Arm(name, config)
    result = ArmResult(
        name,
        runs,
        task,
        tuple(metric for metric in wanted if metric in found),
        summary,
        recorded_model(Path(config).stem, first.identity if first else None),
        paper or index_entry(config, first.cost.parameters if first else None),
        arm.title if arm.title != name else '',
        arm.study.title,
    )
    return replace(result, paper=result.paper and result.paper.at_fraction(result.fraction))


def index_entry(config: str, parameters: int | None = None) -> PaperFigures | None:
    """Return what papers print of a config or of an arm of a study; None if nothing.

    Args:
        config: Its name or its file, or ``STUDY.yml:ARM``.
        parameters: The number that the trained model has, if it was counted. If it differs from the
            config's, the model is another one (other classes, another position embedding), of which
            nothing is printed.
    """
    name = Path(config).stem
    entry = first_answer(lambda one: one.paper_figures(name))
    if entry is None:
        return _arm_entry(config, parameters)
    return None if parameters and entry.parameters not in (None, parameters) else entry


def paper_figures(arm: Arm) -> dict[str, str]:
    """Return the figures of its study's paper for an arm by the paper's metric, as printed.

    Those of an arm that is its base are in the metafile of that config.
    """
    if arm.overrides or arm.variables:
        return ({arm.study.metric: arm.figure} if arm.figure else {}) | dict(arm.also)
    entry, printed = index_entry(Path(arm.base).name), {key: name for name, key in KEYS.items()}
    quotations = entry.quotations if entry else ()
    quoted = (one for one in quotations if one.paper == arm.study.paper)
    return {printed[key]: figure for quotation in quoted for key, figure in quotation.figures.items()}


def _arm_entry(config: str, parameters: int | None) -> PaperFigures | None:
    """Return the entry of an arm of a study.

    The study's figure for it, and its base's length and batch.
    """
    arm = find_arm(config)
    if arm is None or not arm.overrides:
        return index_entry(arm.base, parameters) if arm else None
    base, study = index_entry(arm.base), arm.study
    kept = base and not any(key.startswith(('train_cfg', 'train_dataloader')) for key in arm.overrides)
    quotations: tuple[Quotation, ...] = ()
    if arm.figure is not None:
        figure = f'{arm.figure} relative to {arm.relative_to}' if arm.relative_to else arm.figure
        paper = f'{study.paper}, {study.table}' if study.table else study.paper
        figures = {KEYS.get(study.metric, study.metric): figure}
        figures |= {KEYS[name]: text for name, text in arm.also.items() if name in KEYS}
        quotations = (Quotation(paper, study.runs, study.dataset, figures),)
    return PaperFigures(
        length=base.length if kept else None, batch=base.batch if kept else None, quotations=quotations
    )

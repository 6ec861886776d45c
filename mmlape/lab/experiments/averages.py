"""Averages over the runs of an arm: of the last and of the best evaluation, apart.

The last evaluation of every run is at the same iteration; the best one is picked per run by its
validation metric, so its mean is optimistic. The two are never mixed. A run that is missing,
failed, diverged, broken, running or partial counts in neither, and is listed with its reason. Runs
that differ in what must be equal are not repeats of each other: averaging them is an error that
names the difference.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pandas as pd

from mmlape.console.tables import text_table
from mmlape.errors import DataError, listed
from mmlape.files import write_json
from mmlape.lab.evaluation.metric_names import is_defined, points, ranked
from mmlape.lab.experiments.statistics import Difference, Estimate, estimate
from mmlape.lab.runs.identity import differences, software_differences
from mmlape.lab.runs.run import Run

DASH = '–'


def number(value: float | None, form: str = '.2f') -> str:
    """Return a number as text; a dash for None."""
    return DASH if value is None else f'{value:{form}}'


def probability(p: float | None) -> str:
    """Return a p value as text."""
    return '< 0.001' if p is not None and p < 0.001 else number(p, '.3f')


def interval(entry: Estimate | Difference | None, form: str = '.2f') -> str:
    """Return the interval of an average or of a difference, or the reason why there is none."""
    if entry is None:
        return DASH
    if entry.low is None:
        return f'none, {entry.note}'
    return f'{number(entry.low, form)} to {number(entry.high, form)}'


def mean_std_n(entry: Estimate | None) -> str:
    """Return '67.75 ± 0.94 (2)'; without the deviation for a single run."""
    if entry is None or entry.mean is None:
        return DASH
    deviation = '' if entry.std is None else f' ± {number(entry.std)}'
    return f'{number(entry.mean)}{deviation} ({entry.n})'


EVALUATIONS = ('last', 'best')
SUMMARY = 'summary.json'


@dataclass(frozen=True)
class Average(Estimate):
    """A metric averaged over the runs of an arm that have it.

    Attributes:
        values: The value of each run, by seed; an undefined one is left out, and n says so.
    """

    values: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Evaluations:
    """The last, or the best, evaluations of an arm's runs, averaged.

    Attributes:
        n: How many runs have one.
        steps: The iteration of each, by seed.
        metrics: The average of each metric.
        per_class: The averages of the classes, by metric and class.
    """

    n: int = 0
    steps: Mapping[int, int] = field(default_factory=dict)
    metrics: Mapping[str, Average] = field(default_factory=dict)
    per_class: Mapping[str, Mapping[str, Average]] = field(default_factory=dict)


@dataclass(frozen=True)
class Summary:
    """The runs of an arm, averaged.

    Attributes:
        seeds: Those of the runs that count.
        unfinished: Why a run does not count, by seed.
        key: The metric that the best evaluation is picked by.
        last: The evaluations after the last iteration.
        best: The best evaluation of each run.
    """

    seeds: Sequence[int] = ()
    unfinished: Mapping[int, str] = field(default_factory=dict)
    key: str | None = None
    last: Evaluations = field(default_factory=Evaluations)
    best: Evaluations = field(default_factory=Evaluations)

    def at(self, which: str) -> Evaluations:
        """Return 'last' or 'best'."""
        return {'last': self.last, 'best': self.best}[which]


def check_repeats(runs: Sequence[Run], allow_software: bool = False) -> None:
    """Check that runs of an arm may be averaged.

    Runs without an identity, of older versions, may be averaged with each other only; seeds,
    iterations and the metric of the best evaluation are compared all the same. ``allow_software``:
    the package's code and the stack may differ.

    Raises:
        DataError: They differ in what must be equal; the message names the runs and the difference.
    """
    seeds = [run.seed for run in runs]
    if len(set(seeds)) != len(seeds):
        raise DataError(f'two of {[str(run.folder) for run in runs]} have the same seed: {seeds}')
    keys = {run.best.key for run in runs if run.best}
    if len(keys) > 1:
        raise DataError(f'these runs picked their best evaluation by different metrics: {sorted(keys)}')
    steps = {run.last.step for run in runs if run.last and not run.record.stopped}
    if len(steps) > 1:
        raise DataError(f'these runs end at different iterations, {sorted(steps)}: they are not repeats of each other')
    identified = [run for run in runs if run.identity]
    if identified and len(identified) < len(runs):
        older = next(run for run in runs if not run.identity)
        raise DataError(
            f'{older.folder} has no identity in its run.json (an older version wrote it), '
            f'but {identified[0].folder} does: train it again, or average the two apart'
        )
    for other in identified[1:]:
        lines = differences(identified[0].identity, other.identity, for_resume=False)
        software = software_differences(identified[0].identity, other.identity)
        if allow_software:
            lines = [line for line in lines if line not in software]
        if lines:
            hint = ', or --allow-different-software' if set(lines) <= set(software) else ''
            raise DataError(
                f'{identified[0].folder} and {other.folder} are not repeats of each other '
                f'({listed(lines, 4)}): average them apart, in arms of their own{hint}'
            )


def summarise(runs: Iterable[Run], allow_software: bool = False, in_points: bool = False) -> Summary:
    """Average the runs of an arm, those that count; see `check_repeats` for the others' errors.

    Values are as the metric returned them, or in points.
    """
    runs = list(runs)
    done = [run for run in runs if run.counts]
    check_repeats(done, allow_software)
    unfinished = {run.seed: run.outcome for run in runs if not run.counts}
    key = next((run.best.key for run in done if run.best), None)
    averaged = {}
    for which in EVALUATIONS:
        by_seed = {run.seed: run.last if which == 'last' else run.best for run in done}
        evaluations = {seed: entry for seed, entry in by_seed.items() if entry}
        by_class = {seed: entry.per_class for seed, entry in evaluations.items()}
        per_class = {}
        for name in dict.fromkeys(name for classes in by_class.values() for name in classes):
            rows = {seed: classes.get(name) or {} for seed, classes in by_class.items()}
            per_class[name] = average_values(rows, name, in_points)
        steps = {seed: entry.step for seed, entry in evaluations.items()}
        rows = {seed: entry.metrics for seed, entry in evaluations.items()}
        metrics = average_values(rows, in_points=in_points)
        averaged[which] = Evaluations(len(evaluations), steps, metrics, per_class)
    return Summary([run.seed for run in done], unfinished, key, **averaged)


def average_values(
    rows: Mapping[int, Mapping[str, float | None]], metric: str | None = None, in_points: bool = False
) -> dict[str, Average]:
    """Average each value of ``{seed: {metric: value}}``; undefined ones are left out.

    Args:
        rows: The values; with ``metric``, ``{seed: {class: value}}`` of that metric.
        metric: That metric.
        in_points: Whether to convert them.
    """
    result = {}
    for name in dict.fromkeys(name for row in rows.values() for name in row):
        values = {}
        for seed, row in rows.items():
            value = row.get(name)
            if value is not None and is_defined(metric or name, value):
                values[seed] = points(metric or name, value) if in_points else value
        result[name] = Average(**vars(estimate(list(values.values()))), values=values)
    return result


def write_summary(folder: Path, runs: Sequence[Run], config: str | None = None, allow_software: bool = False) -> None:
    """Write the averages of an arm's runs, with their config, as ``summary.json`` into its folder."""
    write_json(folder / SUMMARY, {'config': config, **asdict(summarise(runs, allow_software))})


def summary_table(summary: Summary) -> pd.DataFrame:
    """Build a table of every metric: mean, standard deviation, n and 95 % interval of last, and of best."""
    rows = []
    for name in ranked({**summary.last.metrics, **summary.best.metrics}, summary.key):
        row: list[str | int] = [name]
        for which in EVALUATIONS:
            entry = summary.at(which).metrics.get(name)
            mean, std, n = (entry.mean, entry.std, entry.n) if entry else (None, None, 0)
            row += [number(mean), number(std), n, interval(entry)]
        rows.append(row)
    columns = (f'{which} {column}' for which in EVALUATIONS for column in ('mean', 'std', 'n', '95 %'))
    return text_table(('metric', *columns), rows)

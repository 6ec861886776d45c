"""Averages over the runs of an arm: of the last and of the best evaluation, apart.

The last evaluation of every run is at the same iteration; the best one is picked per run by its
validation metric, so its mean is optimistic. The two are never mixed. A run that is missing,
failed, diverged, broken, running or partial counts in neither, and is listed with its reason. Runs
that differ in what must be equal are not repeats of each other: averaging them is an error that
names the difference.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pandas as pd

from mmlape.errors import DataError, listed
from mmlape.files import write_json
from mmlape.lab.evaluation.names import is_defined, points, ranked
from mmlape.lab.experiments.statistics import Difference, estimate
from mmlape.lab.runs.identity import differences, software_differences
from mmlape.lab.runs.run import Run
from mmlape.tables import text_table

DASH = '–'


def number(value: float | None, form: str = '.2f') -> str:
    """Return a number as text; a dash for None."""
    return DASH if value is None else f'{value:{form}}'


def probability(p: float | None) -> str:
    """Return a p value as text."""
    return '< 0.001' if p is not None and p < 0.001 else number(p, '.3f')


def interval(entry: Mapping | Difference | None, form: str = '.2f') -> str:
    """Return the interval of an average or of a difference, or the reason why there is none."""
    if entry is None:
        return DASH
    fields = vars(entry) if isinstance(entry, Difference) else entry
    if fields['low'] is None:
        return f'none, {fields["note"]}'
    return f'{number(fields["low"], form)} to {number(fields["high"], form)}'


def mean_std(entry: Mapping | None) -> str:
    """Return '67.75 ± 0.94'; without the deviation for a single run."""
    if entry is None or entry['mean'] is None:
        return DASH
    return number(entry['mean']) + ('' if entry['std'] is None else f' ± {number(entry["std"])}')


def mean_std_n(entry: Mapping | None) -> str:
    """Return '67.75 ± 0.94 (2)'."""
    text = mean_std(entry)
    return text if text == DASH else f'{text} ({entry["n"]})'


EVALUATIONS = ('last', 'best')
SUMMARY = 'summary.json'


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
    keys = {run.best['key'] for run in runs if run.best}
    if len(keys) > 1:
        raise DataError(
            f'these runs picked their best evaluation by different metrics: {sorted(keys)}'
        )
    steps = {run.last['step'] for run in runs if run.last and not run.record.get('stopped')}
    if len(steps) > 1:
        raise DataError(
            f'these runs end at different iterations, {sorted(steps)}: they are not repeats of '
            'each other'
        )
    known = [run for run in runs if run.identity]
    if known and len(known) < len(runs):
        older = next(run for run in runs if not run.identity)
        raise DataError(
            f'{older.folder} has no identity in its run.json (an older version wrote it), '
            f'but {known[0].folder} does: train it again, or average the two apart'
        )
    for other in known[1:]:
        lines = differences(known[0].identity, other.identity, for_resume=False)
        software = software_differences(known[0].identity, other.identity)
        if allow_software:
            lines = [line for line in lines if line not in software]
        if lines:
            hint = ', or --allow-different-software' if set(lines) <= set(software) else ''
            raise DataError(
                f'{known[0].folder} and {other.folder} are not repeats of each other '
                f'({listed(lines, 4)}): average them apart, in arms of their own{hint}'
            )


def summarise(runs: Iterable[Run], allow_software: bool = False) -> dict:
    """Average the runs of an arm, those that count; see `check_repeats` for the others' errors.

    Returns:
        ``seeds`` (of the runs that count), ``unfinished`` ({seed: reason}), ``key`` (the metric
        that 'best' is by), and under ``last`` and under ``best``: ``n``, ``steps`` ({seed:
        iteration}), ``metrics`` and ``per_class`` ({metric: {class: ...}}) with ``mean``, ``std``
        (sample standard deviation), ``n``, ``low`` and ``high`` (95 % interval), ``note`` (why
        there is no interval) and ``values`` ({seed: value}) of each. Values are as the metric
        returned them; undefined ones are left out, and n says so.
    """
    runs = list(runs)
    done = [run for run in runs if run.counts]
    check_repeats(done, allow_software)
    unfinished = {str(run.seed): run.outcome for run in runs if not run.counts}
    key = next((run.best['key'] for run in done if run.best), None)
    summary = {'seeds': [run.seed for run in done], 'unfinished': unfinished, 'key': key}
    for which in EVALUATIONS:
        evaluations = {run.seed: getattr(run, which) for run in done if getattr(run, which)}
        by_class = {seed: entry.get('per_class') or {} for seed, entry in evaluations.items()}
        per_class = {}
        for name in dict.fromkeys(name for classes in by_class.values() for name in classes):
            rows = {seed: classes.get(name) or {} for seed, classes in by_class.items()}
            per_class[name] = moments(rows, name)
        summary[which] = {
            'n': len(evaluations),
            'steps': {str(seed): entry['step'] for seed, entry in evaluations.items()},
            'metrics': moments({seed: entry['metrics'] for seed, entry in evaluations.items()}),
            'per_class': per_class,
        }
    return summary


def moments(rows: dict[int, dict[str, float | None]], metric: str | None = None) -> dict[str, dict]:
    """Return the moments of each value of ``{seed: {metric: value}}``, as in `summarise`.

    Undefined ones are left out.

    Args:
        rows: The values; with ``metric``, ``{seed: {class: value}}`` of that metric.
        metric: That metric.
    """
    result = {}
    for name in dict.fromkeys(name for row in rows.values() for name in row):
        values = {}
        for seed, row in rows.items():
            if is_defined(metric or name, row.get(name)):
                values[str(seed)] = row.get(name)
        result[name] = {**vars(estimate(list(values.values()))), 'values': values}
    return result


def in_points(summary: dict) -> dict:
    """Return a summary with every value in points."""
    scaled = dict(summary)
    for which in EVALUATIONS:
        part = summary[which]
        metrics = {name: entry_in_points(name, entry) for name, entry in part['metrics'].items()}
        per_class = {
            name: {label: entry_in_points(name, entry) for label, entry in rows.items()}
            for name, rows in part['per_class'].items()
        }
        scaled[which] = {**part, 'metrics': metrics, 'per_class': per_class}
    return scaled


def entry_in_points(metric: str, entry: dict) -> dict:
    """Return the moments of a metric, with every value in points."""
    scaled = {
        key: None if entry[key] is None else points(metric, entry[key])
        for key in ('mean', 'std', 'low', 'high')
    }
    return {
        **entry,
        **scaled,
        'values': {seed: points(metric, value) for seed, value in entry['values'].items()},
    }


def write_summary(
    folder: str | Path, runs: Sequence[Run], config: str | None = None, allow_software: bool = False
) -> dict:
    """Average the runs of an arm.

    Write the result, with their config, as ``summary.json`` into the arm's folder.
    """
    summary = {'config': config, **summarise(runs, allow_software)}
    write_json(Path(folder) / SUMMARY, summary)
    return summary


def summary_table(summary: dict) -> pd.DataFrame:
    """Build a table of every metric, in points.

    Mean, standard deviation, n and 95 % interval of last, and of best.
    """
    averages = {which: in_points(summary)[which]['metrics'] for which in EVALUATIONS}
    rows = []
    for name in ranked(averages['last'] | averages['best'], summary['key']):
        row = [name]
        for which in EVALUATIONS:
            entry = averages[which].get(name, {'mean': None, 'std': None, 'n': 0})
            row += [
                number(entry['mean']),
                number(entry['std']),
                entry['n'],
                interval(averages[which].get(name)),
            ]
        rows.append(row)
    columns = (
        f'{which} {column}' for which in EVALUATIONS for column in ('mean', 'std', 'n', '95 %')
    )
    return text_table(('metric', *columns), rows)

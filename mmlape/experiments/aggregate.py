"""Mean, sample standard deviation and n over the runs of an experiment: of the last and of the best evaluation, apart.

The last evaluation of every run is at the same iteration; the best one is picked per run by its validation metric, so
its mean is optimistic. The two are never mixed, and a run that is not finished counts in neither.
"""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from mmlape.engine.record import read_record
from mmlape.errors import DataError

EVALUATIONS = ('last', 'best')
RANKING = ('mIoU', 'coco/bbox_mAP', 'coco/segm_mAP', 'accuracy/top1', 'aAcc', 'mAcc')


@dataclass(frozen=True)
class Run:
    """What ``run.json`` says about the run in a work dir.

    Args:
        folder: The work dir.
        seed: Its seed; None if it was never started.
        state: 'finished', 'failed', 'running', or 'missing'.
        reason: Why it failed; None otherwise.
        last: ``step`` and ``metrics`` of the last evaluation; None if there was none.
        best: The same of the best one, and the ``key`` that it is the best by.
    """

    folder: Path
    seed: int | None
    state: str
    reason: str | None = None
    last: dict | None = None
    best: dict | None = None

    @property
    def finished(self) -> bool:
        return self.state == 'finished'


def seed_folder(folder: str | Path, seed: int) -> Path:
    """Where an experiment keeps the run of a seed."""
    return Path(folder) / f'seed_{seed}'


def read_run(folder: str | Path, seed: int | None = None) -> Run:
    """Reads the record of a run.

    Args:
        folder: Its work dir.
        seed: The seed that it must have; None for any.

    Raises:
        DataError: The record is another seed's.
    """
    folder = Path(folder)
    record = read_record(folder)
    if record is None:
        return Run(folder, seed, 'missing')
    found = record.get('seed')
    if seed is not None and found is not None and found != seed:
        raise DataError(f'{folder} holds a run with seed {found}, not {seed}: move it away, or use another --work-dir')
    state = record.get('state', 'missing')
    return Run(
        folder, seed if found is None else found, state, record.get('reason'), record.get('last'), record.get('best')
    )


def read_seeds(folder: str | Path, seeds: Sequence[int] | None = None) -> list[Run]:
    """The runs of an experiment's folder: of these seeds, or of every ``seed_*`` in it."""
    if seeds is None:
        seeds = sorted(int(path.name[5:]) for path in Path(folder).glob('seed_*') if path.name[5:].isdecimal())
    return [read_run(seed_folder(folder, seed), seed) for seed in seeds]


def summarise(runs: Iterable[Run]) -> dict:
    """Averages finished runs.

    Args:
        runs: Runs of one experiment; those that are not finished are listed and not counted.

    Returns:
        ``seeds`` (of what counts), ``unfinished`` ({seed: state, with the reason}), ``key`` (the metric that 'best'
        is by), and under ``last`` and under ``best``: ``n``, ``steps`` ({seed: iteration}) and ``metrics``
        ({metric: ``mean``, ``std``, ``n``, ``values`` ({seed: value})}). ``std`` is the sample standard deviation
        (n - 1 below); None for n < 2. Undefined values are left out, and n says so.

    Raises:
        DataError: Two runs have one seed, their last evaluations are at different iterations, or their best ones are
            by different metrics.
    """
    runs = list(runs)
    done = [run for run in runs if run.finished]
    seeds = [run.seed for run in done]
    if len(set(seeds)) != len(seeds):
        raise DataError(f'two of {[str(run.folder) for run in done]} have the same seed: {seeds}')
    keys = {run.best['key'] for run in done if run.best}
    if len(keys) > 1:
        raise DataError(f'these runs picked their best evaluation by different metrics: {sorted(keys)}')
    steps = {run.last['step'] for run in done if run.last}
    if len(steps) > 1:
        raise DataError(
            f'these runs end at different iterations, {sorted(steps)}: they are not repeats of one another'
        )
    unfinished = {str(run.seed): f'{run.state}: {run.reason}' if run.reason else run.state for run in runs}
    for seed in seeds:
        unfinished.pop(str(seed))
    summary = {'seeds': seeds, 'unfinished': unfinished, 'key': keys.pop() if keys else None}
    for which in EVALUATIONS:
        found = {run.seed: getattr(run, which) for run in done if getattr(run, which)}
        summary[which] = {
            'n': len(found),
            'steps': {str(seed): entry['step'] for seed, entry in found.items()},
            'metrics': moments({seed: entry['metrics'] for seed, entry in found.items()}),
        }
    return summary


def moments(metrics: dict[int, dict[str, float | None]]) -> dict[str, dict]:
    """Mean, sample standard deviation, n and the values of each metric.

    Args:
        metrics: ``{seed: {metric: value}}``; undefined values are left out.
    """
    result = {}
    for name in dict.fromkeys(name for row in metrics.values() for name in row):
        row = {str(seed): values.get(name) for seed, values in metrics.items()}
        values = {seed: value for seed, value in row.items() if is_defined(name, value)}
        result[name] = {
            'mean': statistics.fmean(values.values()) if values else None,
            'std': statistics.stdev(values.values()) if len(values) > 1 else None,
            'n': len(values),
            'values': values,
        }
    return result


def main_metrics(summary: dict) -> list[str]:
    """The metrics to show first: the one that 'best' is by, then the tasks' usual ones; else all."""
    known = summary['last']['metrics'] | summary['best']['metrics']
    chosen = [name for name in dict.fromkeys((summary['key'], *RANKING)) if name in known]
    return chosen or list(known)


def is_defined(metric: str, value: float | None) -> bool:
    """Whether a value counts: not None, not NaN, and not the -1 with which COCO marks an AP of no objects."""
    return value is not None and math.isfinite(value) and not (value == -1 and _is_precision(metric))


def show(metric: str, value: float | None) -> str:
    """A value as text: four decimals in [0, 1], where AP lies, two in percent; a dash where it is undefined."""
    return f'{value:.{4 if _is_precision(metric) else 2}f}' if is_defined(metric, value) else '-'


def _is_precision(metric: str) -> bool:
    return 'AP' in metric or '_AR' in metric


def summary_table(summary: dict, title: str) -> Table:
    """A table of every metric: mean, standard deviation and n of last, and of best."""
    table = Table('metric', title=title)
    for which in EVALUATIONS:
        for column in ('mean', 'std', 'n'):
            table.add_column(f'{which} {column}', justify='right')
    names = dict.fromkeys([*main_metrics(summary), *summary['last']['metrics'], *summary['best']['metrics']])
    for name in names:
        cells = [name]
        for which in EVALUATIONS:
            entry = summary[which]['metrics'].get(name, {'mean': None, 'std': None, 'n': 0})
            cells += [show(name, entry['mean']), show(name, entry['std']), str(entry['n'])]
        table.add_row(*cells)
    return table

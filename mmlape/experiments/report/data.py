"""A report's numbers for other programs: JSON, and tidy CSV tables (one value, one estimate, one comparison a row)."""

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from mmlape.experiments.averages import EVALUATIONS
from mmlape.experiments.report.arms import ArmResult
from mmlape.experiments.report.content import Report
from mmlape.experiments.statistics import CONFIDENCE
from mmlape.files import write_json

_MOMENTS = ('mean', 'std', 'n', 'low', 'high', 'note')
_TESTED = ('mean', 'low', 'high', 'p', 'holm', 'note')


def write_data(report: Report, folder: Path) -> list[Path]:
    """Write ``report.json``, ``values.csv``, ``estimates.csv`` and ``comparisons.csv``; all values are in points."""
    write_json(folder / 'report.json', as_json(report))
    written = [folder / 'report.json']
    for name, rows, columns in (
        ('values', _values(report), ('arm', 'seed', 'which', 'step', 'metric', 'class', 'value')),
        ('estimates', _estimates(report), ('arm', 'which', 'metric', 'class', *_MOMENTS)),
        ('comparisons', _comparisons(report), _COMPARED),
    ):
        path = folder / f'{name}.csv'
        pd.DataFrame(rows, columns=list(columns)).to_csv(path, index=False)
        written.append(path)
    return written


def as_json(report: Report) -> dict:
    """Return the report as nested dicts; values are in points."""
    return {
        'title': report.title,
        'unit': 'points (AP times 100, percent)',
        'confidence': CONFIDENCE,
        'arms': {result.name: _arm(result) for result in report.results},
        'comparisons': [dict(zip(_COMPARED, row)) for row in _comparisons(report)],
        'not_counted': report.excluded,
        'warnings': report.warnings,
    }


def _arm(result: ArmResult) -> dict:
    identity = {key: value for key, value in result.identity.items() if key != 'settings'}
    return {
        'task': result.task,
        'metrics': list(result.metrics),
        'data_fraction': float(result.fraction),
        'model': vars(result.model),
        'paper': result.known.results if result.known else {},
        'early': [vars(early) for early in result.early()],
        'untrained': {metric: result.untrained(metric) for metric in result.arm.untrained},
        **result.summary,
        'cost': {
            'parameters': result.parameters,
            'flops': result.known.flops if result.known else None,
            'flops_of_size': list(result.known.size) if result.known else None,
            'gpu_hours': result.gpu_hours,
            'runs': {str(run.seed): run.cost for run in result.arm.runs},
        },
        'identity': identity,
    }


def _entries(result: ArmResult) -> Iterator[tuple[str, str, str | None, dict]]:
    """Yield 'last' or 'best', metric, class (None for the metric itself) and the average."""
    for which in EVALUATIONS:
        summary = result.summary[which]
        for metric, entry in summary['metrics'].items():
            yield which, metric, None, entry
        for metric, rows in summary['per_class'].items():
            for name, entry in rows.items():
                yield which, metric, name, entry


def _values(report: Report) -> Iterator[tuple]:
    for result in report.results:
        for which, metric, name, entry in _entries(result):
            for seed, value in entry['values'].items():
                yield result.name, seed, which, result.summary[which]['steps'][seed], metric, name, value


def _estimates(report: Report) -> Iterator[tuple]:
    for result in report.results:
        for which, metric, name, entry in _entries(result):
            yield result.name, which, metric, name, *(entry[key] for key in _MOMENTS)


_COMPARED = ('arm', 'baseline', 'which', 'metric', 'class', 'test', 'n_arm', 'n_baseline', *_TESTED)


def _comparisons(report: Report) -> Iterator[tuple]:
    for pair in (*report.comparisons, *report.classes):
        for test in ('welch', 'paired'):
            difference = getattr(pair, test)
            where = (pair.arm, pair.baseline, pair.which, pair.metric, pair.name)
            yield *where, test, *difference.n, *(getattr(difference, key) for key in _TESTED)

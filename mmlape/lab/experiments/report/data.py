"""The numbers of a report: what ``report.json`` holds, and the three CSV tables, which are views of it.

All values are in points.
"""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from mmlape.lab.decoding import encode
from mmlape.lab.experiments.averages import EVALUATIONS
from mmlape.lab.experiments.report.arms import ArmResult
from mmlape.lab.experiments.report.report_content import Report
from mmlape.lab.experiments.statistics import CONFIDENCE
from mmlape.lab.runs.schema import Cost

FIELDS = {
    'Report': {
        'title': 'The heading.',
        'unit': 'Of all values.',
        'confidence': 'Of all intervals.',
        'arms': 'The arms by name.',
        'comparisons': 'The tests of their differences.',
        'not_counted': 'The runs that are not averaged, a line each.',
        'warnings': 'Reasons to doubt a comparison.',
        'notes': 'How the values came about, a sentence each.',
    },
    'Arm': {
        'title': 'What its study calls it; empty if it has no other name.',
        'task': "'detection', 'segmentation' or 'classification'; null if unknown.",
        'metrics': 'Those that arms are compared by.',
        'data_fraction': 'The share of the training images that it was trained on.',
        'model': "The papers' names of its model. Behind the pretraining '*' is LaPE, '?' another joining.",
        'paper': "The papers' figures by metric, as printed.",
        'seeds': 'Of the runs that are averaged.',
        'unfinished': 'Why a run is not averaged, by seed.',
        'key': 'The metric that the best evaluation of a run is picked by.',
        'last': 'The averages of the evaluations after the last iteration, or of what was measured afterwards.',
        'best': 'The averages of the best evaluations.',
        'cost': 'What the runs took.',
        'identity': 'What its runs were trained from, with and on, without the settings.',
    },
    'Cost': {
        'parameters': 'Of the model, as a run counted them, else as published.',
        'flops': 'Of the config as published, for one image.',
        'flops_of_size': 'Height and width of that image.',
        'gpu_hours': 'Of all runs, including those that do not count.',
        'runs': 'The cost that each run has recorded, by seed.',
    },
    'Comparison': {
        'arm': 'The arm.',
        'baseline': 'What it is compared with.',
        'which': "'last' or 'best'.",
        'metric': 'The metric.',
        'class': 'One of its classes; null for the metric itself.',
        'test': "'welch', of all seeds of either arm, or 'paired', of those that they have in common.",
        'n_arm': 'How many values the arm has.',
        'n_baseline': 'How many values the baseline has.',
        'mean': 'The difference, the arm minus the baseline.',
        'low': 'The lower end of its 95 % interval.',
        'high': 'The upper end.',
        'p': 'Two-sided, of no difference.',
        'holm': "``p`` after Holm's correction.",
        'note': 'Why there is neither interval nor ``p``.',
    },
}
"""The keys of each part of ``report.json``, and what they mean."""
_MOMENTS = ('mean', 'std', 'n', 'low', 'high', 'note')
CSV_COLUMNS = {
    'values': ('arm', 'seed', 'which', 'step', 'metric', 'class', 'value'),
    'estimates': ('arm', 'which', 'metric', 'class', *_MOMENTS),
    'comparisons': tuple(FIELDS['Comparison']),
}
"""The columns of the CSV tables by name."""


def report_data(report: Report) -> dict[str, Any]:
    """Return what ``report.json`` holds."""
    return {
        'title': report.title,
        'unit': 'points (AP times 100, percent)',
        'confidence': CONFIDENCE,
        'arms': {result.name: _arm(result) for result in report.results},
        'comparisons': list(_comparisons(report)),
        'not_counted': report.excluded,
        'warnings': report.warnings,
        'notes': list(report.notes),
    }


def csv_rows(content: dict[str, Any]) -> dict[str, list[tuple]]:
    """Return the rows of the CSV tables by name: each value of each run, each average, each test of a difference.

    ``content`` is what `report_data` returns.
    """
    values, estimates = [], []
    for arm, result in content['arms'].items():
        for which in EVALUATIONS:
            for metric, name, average in _averages(result[which]):
                for seed, value in average['values'].items():
                    values.append((arm, seed, which, result[which]['steps'].get(seed), metric, name, value))
                estimates.append((arm, which, metric, name, *(average[moment] for moment in _MOMENTS)))
    comparisons = [tuple(row.values()) for row in content['comparisons']]
    return {'values': values, 'estimates': estimates, 'comparisons': comparisons}


def _averages(evaluations: dict[str, Any]) -> Iterator[tuple[str, str | None, dict[str, Any]]]:
    """Yield metric, class (None for the metric itself) and the average."""
    for metric, average in evaluations['metrics'].items():
        yield metric, None, average
    for metric, classes in evaluations['per_class'].items():
        for name, average in classes.items():
            yield metric, name, average


def _arm(result: ArmResult) -> dict[str, Any]:
    summary, paper = result.summary, result.paper
    return {
        'title': result.title,
        'task': result.task,
        'metrics': list(result.metrics),
        'data_fraction': float(result.fraction),
        'model': asdict(result.model),
        'paper': paper.results if paper else {},
        **asdict(summary),
        'cost': {
            'parameters': result.parameters,
            'flops': paper.flops if paper else None,
            'flops_of_size': list(paper.size) if paper else None,
            'gpu_hours': result.gpu_hours,
            'runs': {run.seed: encode(run.cost) if run.cost != Cost() else {} for run in result.runs},
        },
        'identity': encode(result.identity) if result.identity else {},
    }


def _comparisons(report: Report) -> Iterator[dict[str, Any]]:
    for pair in (*report.comparisons, *report.classes):
        for test, found in (('welch', pair.welch), ('paired', pair.paired)):
            yield {
                'arm': pair.arm,
                'baseline': pair.baseline,
                'which': pair.which,
                'metric': pair.metric,
                'class': pair.name,
                'test': test,
                'n_arm': found.n[0],
                'n_baseline': found.n[1],
                'mean': found.mean,
                'low': found.low,
                'high': found.high,
                'p': found.p,
                'holm': found.holm,
                'note': found.note,
            }

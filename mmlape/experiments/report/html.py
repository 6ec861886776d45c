"""A report as one HTML page that needs nothing else: style and images inside, names escaped by Jinja."""

import base64
import mimetypes
from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, StrictUndefined

from mmlape.evaluation.names import label
from mmlape.experiments.averages import EVALUATIONS
from mmlape.experiments.report import explanations, provenance, tables
from mmlape.experiments.report.content import Report
from mmlape.experiments.report.cost import cost_table
from mmlape.experiments.report.figures import Drawings, colour
from mmlape.experiments.report.fractions import fraction_table

_SECTIONS = {
    'results': 'Results',
    'differences': 'Differences',
    'curves': 'Curves',
    'classes': 'Classes',
    'cost': 'Cost',
    'images': 'Images',
    'provenance': 'Provenance',
    'metrics': 'All metrics',
}


def write_html(report: Report, path: Path, drawings: Drawings) -> Path:
    """Write a report.

    Args:
        report: Its content.
        path: The file.
        drawings: From `mmlape.experiments.report.figures.draw`.
    """
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string((Path(__file__).parent / 'page.html').read_text(encoding='utf-8'))
    content = _content(report, drawings)
    shown = [(name, text) for name, text in _SECTIONS.items() if content.get(name)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(template.render(report=report, explain=explanations, sections=shown, **content), encoding='utf-8')
    return path


def _content(report: Report, drawings: Drawings) -> dict:
    compared = [
        (which, tables.comparison_table(report, which), explanations.tests(report, which))
        for which in EVALUATIONS
        if any(one.which == which for one in report.comparisons)
    ]
    classes = [
        (f'{title}, {label(metric)}', data_uri(drawings.classes[title, metric]), tables.class_table(group))
        for title, metric, group in tables.grouped_classes(report)
    ]
    return {
        'colours': {result.name: colour(place) for place, result in enumerate(report.results)},
        'excluded': report.excluded,
        'results': tables.results_table(report),
        'early': tables.early_table(report),
        'fractions': fraction_table(report),
        'notes': [*report.notes, *explanations.paper(report)],
        'comparisons': compared,
        'differences': compared,
        'forest': data_uri(drawings.differences) if drawings.differences else None,
        'seeds': tables.seeds_table(report),
        'curves': _images(drawings.curves.items()),
        'classes': classes,
        'cost': cost_table(report),
        'images': [
            (caption, _images((file.stem, file) for file in files)) for caption, files in report.images.items()
        ],
        'provenance': provenance.provenance_table(report),
        'facts': [*provenance.stacks(report), *provenance.setting_lines(report)],
        'metrics': [(result.name, tables.metrics_table(result)) for result in report.results],
    }


def _images(files) -> Sequence[tuple[str, str]]:
    return [(name, data_uri(file)) for name, file in files]


def data_uri(path: Path) -> str:
    """Return an image file as a `data:` address."""
    kind = mimetypes.guess_type(path.name)[0] or 'application/octet-stream'
    return f'data:{kind};base64,{base64.b64encode(path.read_bytes()).decode()}'

"""A report as Markdown; links to figures are relative, so its folder can be moved."""

import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from mmlape.evaluation.names import label
from mmlape.experiments.averages import EVALUATIONS
from mmlape.experiments.report import explanations, provenance, tables
from mmlape.experiments.report.content import Report
from mmlape.experiments.report.cost import cost_table
from mmlape.experiments.report.figures import Drawings
from mmlape.experiments.report.fractions import fraction_table

_SPECIAL = str.maketrans({character: f'\\{character}' for character in '\\`*_[]<>|$'})


def write_markdown(report: Report, path: Path, drawings: Drawings) -> Path:
    """Write a report.

    Args:
        report: Its content.
        path: The file.
        drawings: From `mmlape.experiments.report.figures.draw`.
    """
    parts = [*_results(report), *_curves(drawings, path), *_classes(report, drawings, path)]
    parts += [*_costs(report), *_provenance(report)]
    for caption, images in report.images.items():
        parts += [f'## {_text(caption)}', *(_link(image.stem, image, path) for image in images)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('\n\n'.join(part for part in parts if part) + '\n', encoding='utf-8')
    return path


def markdown_table(table: tables.Table) -> str:
    """Return a table as Markdown."""
    rule = ('---',) * table.text_columns + ('---:',) * (len(table.columns) - table.text_columns)
    cells = [tuple(map(_text, row)) for row in (table.columns, *table.rows)]
    return '\n'.join(f'| {" | ".join(row)} |' for row in (cells[0], rule, *cells[1:]))


def _text(text: str) -> str:
    """Escape text."""
    return text.translate(_SPECIAL)


def _list(lines) -> str:
    return '\n'.join(f'- {_text(line)}' for line in lines)


def _link(name: str, target: Path, report: Path) -> str:
    relative = os.path.relpath(target, report.parent).replace(os.sep, '/')
    return f'![{_text(name)}]({quote(relative)})'


def _results(report: Report) -> Iterator[str]:
    yield f'# {_text(report.title)}'
    yield _text(report.introduction)
    yield '## Results'
    yield markdown_table(tables.results_table(report))
    yield explanations.legend()
    yield _list([*report.notes, *explanations.paper(report), *report.warnings])
    early = tables.early_table(report)
    if early.rows:
        yield '## Earlier epochs'
        yield markdown_table(early)
    of_fractions = fraction_table(report)
    if of_fractions.rows:
        yield '## Fractions of the training images'
        yield markdown_table(of_fractions)
        yield explanations.fractions()
    if report.excluded:
        yield f'Not counted:\n\n{_list(report.excluded)}'
    for which in EVALUATIONS:
        table = tables.comparison_table(report, which)
        if table.rows:
            yield f'## Differences, {which} evaluation'
            yield markdown_table(table)
            yield explanations.tests(report, which)
    table = tables.seeds_table(report)
    if table.rows:
        yield '## Seeds needed'
        yield markdown_table(table)
        yield explanations.seeds()


def _curves(drawings: Drawings, path: Path) -> Iterator[str]:
    named = {**({'Differences': drawings.differences} if drawings.differences else {}), **drawings.curves}
    if named:
        yield '## Figures'
    for caption, drawing in named.items():
        yield f'**{_text(caption)}**'
        yield _link(caption, drawing, path)


def _classes(report: Report, drawings: Drawings, path: Path) -> Iterator[str]:
    groups = tables.grouped_classes(report)
    if groups:
        yield '## Classes'
        yield explanations.classes()
    for title, metric, group in groups:
        yield f'**{_text(title)}, {label(metric)}**'
        yield _link(title, drawings.classes[title, metric], path)
        yield markdown_table(tables.class_table(group))


def _costs(report: Report) -> Iterator[str]:
    yield '## Cost'
    yield markdown_table(cost_table(report))
    yield explanations.cost()


def _provenance(report: Report) -> Iterator[str]:
    yield '## Provenance'
    yield markdown_table(provenance.provenance_table(report))
    yield _list([*provenance.stacks(report), *provenance.setting_lines(report)])
    yield '## All metrics'
    for result in report.results:
        yield f'**{_text(result.name)}**'
        yield markdown_table(tables.metrics_table(result))

"""A report as Markdown; links to drawings are relative, so that its folder can be moved."""

import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from mmlape.evaluation.names import label
from mmlape.experiments.averages import EVALUATIONS
from mmlape.experiments.report import origin, tables, words
from mmlape.experiments.report.content import Report
from mmlape.experiments.report.figures import Drawings

_SPECIAL = str.maketrans({character: f'\\{character}' for character in '\\`*_[]<>|$'})


def write_markdown(report: Report, path: Path, drawings: Drawings) -> Path:
    """Writes a report.

    Args:
        report: Its contents.
        path: The file.
        drawings: As `mmlape.experiments.report.figures.draw` made them.
    """
    parts = [*_results(report), *_curves(drawings, path), *_classes(report, drawings, path)]
    parts += [*_costs(report), *_origin(report)]
    for caption, pictures in report.pictures.items():
        parts += [f'## {_text(caption)}', *(_link(picture.stem, picture, path) for picture in pictures)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('\n\n'.join(part for part in parts if part) + '\n', encoding='utf-8')
    return path


def markdown_table(table: tables.Table) -> str:
    """A table as Markdown."""
    rule = ('---',) * table.words + ('---:',) * (len(table.columns) - table.words)
    cells = [tuple(map(_text, row)) for row in (table.columns, *table.rows)]
    return '\n'.join(f'| {" | ".join(row)} |' for row in (cells[0], rule, *cells[1:]))


def _text(words: str) -> str:
    """Words without a meaning in Markdown."""
    return words.translate(_SPECIAL)


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
    yield words.legend()
    yield _list([*report.notes, *words.paper(report), *report.warnings])
    if report.excluded:
        yield f'Not counted:\n\n{_list(report.excluded)}'
    for which in EVALUATIONS:
        table = tables.comparison_table(report, which)
        if table.rows:
            yield f'## Differences, {which} evaluation'
            yield markdown_table(table)
            yield words.tests(report, which)
    table = tables.seeds_table(report)
    if table.rows:
        yield '## Seeds needed'
        yield markdown_table(table)
        yield words.seeds()


def _curves(drawings: Drawings, path: Path) -> Iterator[str]:
    named = {**({'Differences': drawings.differences} if drawings.differences else {}), **drawings.curves}
    if named:
        yield '## Drawings'
    for caption, drawing in named.items():
        yield f'**{_text(caption)}**'
        yield _link(caption, drawing, path)


def _classes(report: Report, drawings: Drawings, path: Path) -> Iterator[str]:
    groups = tables.grouped_classes(report)
    if groups:
        yield '## Classes'
        yield words.classes()
    for title, metric, group in groups:
        yield f'**{_text(title)}, {label(metric)}**'
        yield _link(title, drawings.classes[title, metric], path)
        yield markdown_table(tables.class_table(group))


def _costs(report: Report) -> Iterator[str]:
    yield '## Cost'
    yield markdown_table(origin.cost_table(report))
    yield words.cost()


def _origin(report: Report) -> Iterator[str]:
    yield '## Origin'
    yield markdown_table(origin.origin_table(report))
    yield _list([*origin.stacks(report), *origin.setting_lines(report)])
    yield '## All metrics'
    for result in report.results:
        yield f'**{_text(result.name)}**'
        yield markdown_table(tables.metrics_table(result))

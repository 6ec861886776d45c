"""A report as a document: its sections, written as one HTML page that needs nothing else, and as Markdown."""

import base64
import mimetypes
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from mmlape.evaluation.names import label
from mmlape.experiments.averages import EVALUATIONS
from mmlape.experiments.report import explanations, tables
from mmlape.experiments.report.content import Report
from mmlape.experiments.report.figures import Drawings, colour
from mmlape.experiments.report.fractions import fraction_table
from mmlape.tables import html_table, markdown_table, markdown_text


class Part(NamedTuple):
    """A part of a section.

    Attributes:
        kind: 'heading', 'text', 'list', 'warnings', 'table', 'folded' (a table that is closed at first) or 'figure'.
        content: A text, lines, a frame, or the file of a figure.
        caption: Of a table or a figure.
    """

    kind: str
    content: Any
    caption: str = ''


def sections(report: Report, drawings: Drawings) -> dict[str, list[Part]]:
    """Return the parts of each section by its title; the first section, the head, has none."""
    parts = {
        '': list(_head(report)),
        'Results': list(_results(report)),
        'Differences': list(_differences(report, drawings)),
        'Curves': [Part('text', explanations.CURVES), *_figures(drawings.curves.items())] if drawings.curves else [],
        'Classes': list(_classes(report, drawings)),
        'Cost': [Part('table', tables.cost_table(report), 'Cost'), Part('text', explanations.COST)],
        'Images': [
            part
            for caption, files in report.images.items()
            for part in (Part('heading', caption), *_figures((file.stem, file) for file in files))
        ],
        'Provenance': [
            Part('table', tables.provenance_table(report), 'Provenance'),
            *_list([*explanations.stacks(report), *explanations.setting_lines(report)]),
        ],
        'All metrics': [Part('folded', tables.metrics_table(result), result.name) for result in report.results],
    }
    return {title: content for title, content in parts.items() if content or not title}


def _figures(files: Iterable[tuple[str, Path]]) -> list[Part]:
    return [Part('figure', file, caption) for caption, file in files]


def _list(lines: list[str]) -> list[Part]:
    return [Part('list', lines)] if lines else []


def _head(report: Report) -> Iterator[Part]:
    if report.introduction:
        yield Part('text', report.introduction)
    for title, lines in (('Not counted', report.excluded), ('Warnings', report.warnings)):
        if lines:
            yield Part('warnings', lines, title)


def _results(report: Report) -> Iterator[Part]:
    yield Part('table', tables.results_table(report), 'Results')
    yield Part('text', explanations.RESULTS)
    yield from _list([*report.notes, *explanations.paper(report)])
    early, fractions = tables.early_table(report), fraction_table(report)
    if len(early):
        yield Part('heading', 'Earlier epochs')
        yield Part('table', early, 'Earlier epochs')
    if len(fractions):
        yield Part('heading', 'Fractions of the training images')
        yield Part('table', fractions, 'Fractions of the training images')
        yield Part('text', explanations.FRACTIONS)


def _differences(report: Report, drawings: Drawings) -> Iterator[Part]:
    if drawings.differences:
        yield Part('figure', drawings.differences, 'Differences with their intervals, last evaluation')
    for which in EVALUATIONS:
        if report.comparisons_at(which):
            yield Part('heading', f'{which.capitalize()} evaluation')
            yield Part('table', tables.comparison_table(report, which), f'Differences, {which} evaluation')
            yield Part('text', explanations.tests(report, which))
    seeds = tables.seeds_table(report)
    if len(seeds):
        yield Part('heading', 'Seeds needed')
        yield Part('table', seeds, 'Seeds needed')
        yield Part('text', explanations.SEEDS)


def _classes(report: Report, drawings: Drawings) -> Iterator[Part]:
    for number, (title, metric, group) in enumerate(tables.grouped_classes(report)):
        if number == 0:
            yield Part('text', explanations.CLASSES)
        caption = f'{title}, {label(metric)}'
        yield Part('figure', drawings.classes[title, metric], caption)
        yield Part('folded', tables.class_table(group), f'All {len(group)} classes: {caption}')


def write_html(report: Report, path: Path, drawings: Drawings) -> Path:
    """Write a report as a page; Jinja escapes names, and images are inside."""
    dots = {
        result.name: f'<span class="dot" style="background:{colour(place)}"></span>'
        for place, result in enumerate(report.results)
    }
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters['table'] = lambda frame: Markup(html_table(frame, dots if _is_of_arms(frame) else {}))
    environment.filters['data_uri'] = data_uri
    template = environment.from_string((Path(__file__).parent / 'page.html').read_text(encoding='utf-8'))
    page = template.render(title=report.title, sections=sections(report, drawings))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, encoding='utf-8')
    return path


def _is_of_arms(frame) -> bool:
    return frame.index.names[0] == 'arm'


def data_uri(path: Path) -> str:
    """Return an image file as a `data:` address."""
    kind = mimetypes.guess_type(path.name)[0] or 'application/octet-stream'
    return f'data:{kind};base64,{base64.b64encode(path.read_bytes()).decode()}'


def write_markdown(report: Report, path: Path, drawings: Drawings) -> Path:
    """Write a report as Markdown; links to figures are relative, so its folder can be moved."""
    blocks = [f'# {markdown_text(report.title)}']
    for title, parts in sections(report, drawings).items():
        blocks += [f'## {title}'] if title else []
        blocks += [_markdown(part, path.parent) for part in parts]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('\n\n'.join(blocks) + '\n', encoding='utf-8')
    return path


def _markdown(part: Part, folder: Path) -> str:
    caption = f'**{markdown_text(part.caption)}**'
    if part.kind == 'heading':
        return f'### {markdown_text(part.content)}'
    if part.kind == 'text':
        return markdown_text(part.content)
    if part.kind == 'list':
        return _markdown_list(part.content)
    if part.kind == 'warnings':
        return f'{caption}\n\n{_markdown_list(part.content)}'
    if part.kind == 'figure':
        link = quote(os.path.relpath(part.content, folder).replace(os.sep, '/'))
        return f'{caption}\n\n![{markdown_text(part.caption)}]({link})'
    return f'{caption}\n\n{markdown_table(part.content)}' if part.kind == 'folded' else markdown_table(part.content)


def _markdown_list(lines: Iterable[str]) -> str:
    return '\n'.join(f'- {markdown_text(line)}' for line in lines)

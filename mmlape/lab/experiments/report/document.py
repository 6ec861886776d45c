"""A report as a document: its sections, which a page shows, too, written as Markdown; and its tables in LaTeX."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import quote

import pandas as pd

from mmlape.console.page import Element
from mmlape.console.tables import latex_table, markdown_table, markdown_text
from mmlape.files import write_text
from mmlape.lab.evaluation.metric_names import label
from mmlape.lab.experiments.averages import EVALUATIONS
from mmlape.lab.experiments.report import tables
from mmlape.lab.experiments.report.arms import ArmResult
from mmlape.lab.experiments.report.figures import draw_curves, plot_classes, plot_differences, plot_fractions
from mmlape.lab.experiments.report.report_content import Report
from mmlape.lab.experiments.statistics import CONFIDENCE, INTERVAL, LEAST
from mmlape.lab.extension import Quotation, extensions
from mmlape.lab.runs.identity import named_differences
from mmlape.lab.runs.schema import RunRecord

LAST_AND_BEST = (
    'Last is the evaluation after the last iteration; best is the best evaluation of each run, picked '
    'on the images that it is measured on, so its mean is optimistic. The two are never mixed. '
)
RESULTS = (
    'The deviation is the sample standard deviation over seeds, n in brackets; the interval is '
    f"Student's t, {CONFIDENCE:.0%}, of the mean, and there is none for n < {LEAST}. Values are in "
    'points: AP times 100, others in percent.'
)
FRACTIONS = (
    'Of the last evaluation. A fraction is of the training images; the validation images are all '
    'the same. A smaller fraction is a part of a larger one, and the same for all seeds and arms '
    "unless data_fraction_seed says otherwise. With 'run', a run's own seed decides, and the "
    'interval is over images too.'
)
CURVES = 'Mean over the averaged runs; the band is one sample standard deviation to either side.'
CLASSES = (
    "Of the last evaluation, sorted by the difference; bars have Welch's interval where there are "
    "three seeds. Holm's correction is over the classes of one table."
)
COST = (
    'Memory and times are means over the averaged runs, as they recorded them. GPU hours are the '
    'sum over all runs, failed ones included. FLOPs (multiply-adds) are those of the config as '
    'published; the command mmlape model-cost counts those of any config.'
)


def tests(report: Report, which: str) -> str:
    """Explain the tests of the comparisons at 'last' or 'best', and Holm's family."""
    family = report.comparisons_at(which)
    tested, pairs = (sum(getattr(pair, test).p is not None for pair in family) for test in ('welch', 'paired'))
    return (
        "Differences are in points. Welch's test takes all seeds of either arm, the paired t-test "
        "those in common; choose one of them before you read the results. Holm's correction is "
        f'over the comparisons of this table that have a p: {tested} of {len(family)} by Welch, '
        f'{pairs} by pairs, each test a family of its own. Fewer than {LEAST} seeds in an arm, or '
        'values without any spread, give neither interval nor p.'
    )


def paper(report: Report) -> list[str]:
    """Return the sources of the papers' figures, and which arms were not trained as published."""
    results = [result for result in report.results if result.paper and result.paper.quotations]
    quotations = [quotation for result in results for quotation in result.paper.quotations]
    if not quotations:
        return []
    lines = [f"The papers' figures were not measured here: {'; '.join(sources(quotations))}."]
    lines += [f'{note}.' for note in dict.fromkeys(quotation.note for quotation in quotations if quotation.note)]
    datasets = {quotation.dataset for quotation in quotations}
    lines += [text for one in extensions() for name, text in one.on_figures.items() if name in datasets]
    return lines + [line for result in results for line in _not_as_published(result)]


def sources(quotations: Iterable[Quotation]) -> list[str]:
    """Return each source once, such as 'LaPE (ICCV 2023) on COCO, mean of five seeds'."""
    return list(dict.fromkeys(f'{quoted.paper} on {quoted.dataset}, {_runs(quoted.runs)}' for quoted in quotations))


def _runs(runs: str) -> str:
    return runs if runs.startswith('mean') else f'number of runs {runs}'


def _not_as_published(result: ArmResult) -> Iterator[str]:
    """Yield the length and the batch of an arm where they are not its recipe's."""
    record = result.first.record if result.first else RunRecord()
    unit, length = result.paper.length or (None, None)
    trained = record.max_epochs if unit == 'Epochs' else record.max_iters
    apart = [
        f'{mine} {what} instead of {theirs}'
        for mine, theirs, what in (
            (trained, length, (unit or '').lower()),
            (record.total_batch, result.paper.batch, 'images a batch'),
        )
        if mine is not None and theirs is not None and mine != theirs
    ]
    if apart:
        yield f'{result.name} was not trained as published: {", ".join(apart)}.'


def stacks(report: Report) -> list[str]:
    """Return the versions that the arms ran with, a line for each set of versions."""
    arms: dict[str, list[str]] = {}
    for result in report.results:
        if result.identity and result.identity.stack:
            versions = ', '.join(f'{name} {version}' for name, version in result.identity.stack.items())
            arms.setdefault(versions, []).append(result.name)
    return [f'{versions} ({", ".join(names)})' if len(arms) > 1 else versions for versions, names in arms.items()]


def setting_lines(report: Report) -> list[str]:
    """Return the settings in which each arm differs from its baseline, a line for each pair."""
    lines = []
    for arm, other in report.pairs:
        settings = [result.settings for result in (other, arm)]
        if all(settings):
            named = [line.replace(' -> ', ' → ') for line in named_differences(*settings)]
            lines.append(f'{other.name} → {arm.name}: {"; ".join(named) or "the same settings"}')
    return lines


_DOCUMENT = r"""\documentclass{article}
\usepackage[utf8]{inputenc}
\usepackage[margin=2cm]{geometry}
\usepackage{array,booktabs,graphicx}
\begin{document}
\input{tables}
\end{document}
"""
OPEN = ('Results', 'Differences', 'Curves', 'Images')
"""Sections that the page shows, without their details unless these are open."""


def sections(report: Report, folder: Path) -> dict[str, list[Element]]:
    """Draw the figures into a folder.

    Return the parts of each section by its title, which the first one lacks.
    """
    parts = {
        '': [
            Element(report.introduction),
            Element(report.excluded, 'Not counted'),
            Element(report.warnings, 'Warnings'),
        ],
        'Results': list(_results(report, folder)),
        'Differences': list(_differences(report, folder)),
        'Curves': list(_curves(report, folder)),
        'Classes': list(_classes(report, folder)),
        'Images': [
            _details(caption, *(Element(file, file.stem) for file in files), open=True)
            for caption, files in report.images.items()
        ],
        'Cost': list(_cost(report)),
        'Provenance': [Element(tables.provenance_table(report)), Element([*stacks(report), *setting_lines(report)])],
        'All metrics': [_details(result.name, Element(tables.metrics_table(result))) for result in report.results],
    }
    kept = {title: _not_empty(content) for title, content in parts.items()}
    return {title: content for title, content in kept.items() if content or not title}


def _not_empty(parts: Iterable[Element]) -> list[Element]:
    return [part for part in parts if not part.is_empty]


def _details(caption: str, *parts: Element, open: bool = False) -> Element:
    return Element(_not_empty(parts), caption, open)


def _results(report: Report, folder: Path) -> Iterator[Element]:
    yield from report.first
    yield Element(tables.results_table(report), 'Results')
    yield Element(report.baseline_line)
    notes = [*report.notes, *paper(report)]
    how = (LAST_AND_BEST if report.has_best else '') + RESULTS
    yield _details('How to read these values', Element(how), Element(notes))
    fractions = plot_fractions(report, folder)
    yield from (Element(file, caption) for caption, file in fractions.items())
    yield Element(FRACTIONS if fractions else '')


def _differences(report: Report, folder: Path) -> Iterator[Element]:
    if figure := plot_differences(report, folder / 'differences.svg'):
        yield Element(figure, 'Differences with their intervals, last evaluation')
    for which in EVALUATIONS:
        if len(table := tables.comparison_table(report, which)):
            about = Element(tests(report, which))
            yield _details(f'{which.capitalize()} evaluation', Element(table), about)


def _curves(report: Report, folder: Path) -> Iterator[Element]:
    for number, (caption, file) in enumerate(draw_curves(report, folder).items()):
        figure = Element(file, caption)
        yield from (_details(caption, figure),) if number else (Element(CURVES), figure)


def _cost(report: Report) -> Iterator[Element]:
    if len(table := tables.cost_table(report)):
        yield from (Element(table), Element(COST))


def _classes(report: Report, folder: Path) -> Iterator[Element]:
    for number, (title, metric, group) in enumerate(tables.grouped_classes(report)):
        caption = f'{title}, {label(metric)}'
        file = plot_classes(group, title, folder / f'classes-{number}.svg')
        about = (Element(tables.class_table(group)), Element(CLASSES))
        yield _details(f'{caption}: {len(group)} classes', Element(file, caption), *about)


def write_markdown(report: Report, parts: dict[str, list[Element]], path: Path) -> Path:
    """Write a report as Markdown; links to figures are relative, so its folder can be moved."""
    blocks = [f'# {markdown_text(report.title)}']
    for title, content in parts.items():
        blocks += [f'## {title}'] if title else []
        blocks += [_markdown(part, path.parent) for part in content]
    write_text(path, '\n\n'.join(blocks) + '\n')
    return path


def write_latex(report: Report, folder: Path) -> list[Path]:
    r"""Write ``tables.tex``, for ``\input`` in a paper, and ``report.tex``, a document around it."""
    lines = ['% needs \\usepackage{array,booktabs,graphicx}']
    lines += [f'% note: {" ".join(line.split())}' for line in paper(report)]
    results = tables.results_table(report)
    # no page of paper has room for intervals
    results = results.drop(columns=[name for name in results if name.endswith(INTERVAL)])
    best = LAST_AND_BEST if report.has_best else ''
    lines.append(latex_table(results, f'{report.title}. {best}Mean ± sample standard deviation (n) in points.'))
    for which in EVALUATIONS:
        if len(table := tables.comparison_table(report, which)):
            caption = f'{report.title}, {which} evaluation. {tests(report, which)}'
            lines.append(latex_table(table, caption))
    files = [folder / 'tables.tex', folder / 'report.tex']
    write_text(files[0], '\n'.join(lines))
    write_text(files[1], _DOCUMENT)
    return files


def _markdown(part: Element, folder: Path) -> str:
    content, caption = part.content, markdown_text(part.caption)
    if isinstance(content, str):
        return markdown_text(content)
    if isinstance(content, pd.DataFrame):
        return markdown_table(content)
    if isinstance(content, Path):
        link = quote(os.path.relpath(content, folder).replace(os.sep, '/'))
        return f'**{caption}**\n\n![{caption}]({link})'
    items = [_markdown(one, folder) if isinstance(one, Element) else f'- {markdown_text(one)}' for one in content]
    if isinstance(content[0], Element):
        return '\n\n'.join([f'### {caption}', *items])
    lines = '\n'.join(items)
    return f'**{caption}**\n\n{lines}' if caption else lines

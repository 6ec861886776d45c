r"""A report's tables as LaTeX with booktabs, in the layout of the LaPE paper's Tables 3 and 4.

``tables.tex`` is for ``\input`` in a paper whose preamble loads array and booktabs; ``report.tex``
is a document around it. The paper's own figures stand in a column of their own, headed as the
paper's.
"""

import unicodedata
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from mmlape.files import write_text
from mmlape.lab.evaluation.names import label
from mmlape.lab.experiments.averages import DASH, EVALUATIONS, mean_std, number, probability
from mmlape.lab.experiments.report.arms import ArmResult
from mmlape.lab.experiments.report.content import Report
from mmlape.lab.experiments.report.document import paper, sources
from mmlape.lab.experiments.report.tables import paper_figure
from mmlape.lab.experiments.statistics import CONFIDENCE, LEAST
from mmlape.lab.extension import extensions
from mmlape.tables import latex_table, text_table

_SPECIAL = {'\\': r'\textbackslash{}', '~': r'\textasciitilde{}', '^': r'\textasciicircum{}', '*': '$^*$'}
_SPECIAL |= {character: f'\\{character}' for character in '&%$#_{}'}
_SPECIAL |= {'–': '--', '−': '$-$', '±': r'$\pm$', '<': '$<$', '>': '$>$', '→': r'$\rightarrow$', '×': r'$\times$'}
_TITLES = {
    'detection': 'Object detection results',
    'segmentation': 'Semantic segmentation results',
    'classification': 'Image classification results',
}
_DOCUMENT = r"""\documentclass{article}
\usepackage[utf8]{inputenc}
\usepackage[margin=2cm]{geometry}
\usepackage{array,booktabs}
\begin{document}
\input{tables}
\end{document}
"""


def write_latex(report: Report, folder: Path) -> list[Path]:
    """Write ``tables.tex`` and ``report.tex``."""
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / 'tables.tex', '\n'.join(_tables(report)))
    write_text(folder / 'report.tex', _DOCUMENT)
    return [folder / 'tables.tex', folder / 'report.tex']


def escape(text: str) -> str:
    """Escape text; letters that an ordinary preamble does not know become question marks."""
    return ''.join(_SPECIAL.get(letter, letter if _is_plain(letter) else '?') for letter in text)


def _is_plain(letter: str) -> bool:
    """Return whether a letter is ASCII, or a Latin letter with an accent, which TeX composes."""
    accented = ord(letter) < 0x180 and unicodedata.decomposition(letter)[:1] not in ('', '<')
    return letter.isprintable() and (letter.isascii() or accented)


def _tables(report: Report) -> Iterator[str]:
    yield '% needs \\usepackage{array,booktabs}'
    for line in paper(report):
        yield f'% note: {" ".join(line.split())}'
    for task, title in _TITLES.items():
        results = [result for result in report.results if result.task == task and result.metrics]
        if results:
            yield _results(title, results)
    measured = [result for result in report.results if result.arm.measured]
    if measured:
        yield _measured(report.title, measured)
    for which in EVALUATIONS:
        if report.comparisons_at(which):
            yield _comparisons(report, which)


def _results(title: str, results: Sequence[ArmResult]) -> str:
    """Return one of the paper's tables: a block of rows for each model."""
    metrics = list(dict.fromkeys(name for result in results for name in result.metrics))
    metric = escape(' / '.join(map(label, metrics)))
    quoted = [quotation for result in results if result.paper for quotation in result.paper.quotations]
    papers = escape(f'({", ".join(dict.fromkeys(quotation.short for quotation in quoted))} paper)')
    data = escape(' and '.join(dict.fromkeys(quotation.dataset for quotation in quoted)))
    titled = any(result.title for result in results)
    columns = ['Model', 'Pre-trained Model', 'PE Method', *['Arm'] * titled, r'\#param.', 'seeds', metric]
    columns += [f'{metric} {papers}'] if quoted else []
    names = list(dict.fromkeys(result.model.name for result in results))
    ordered = sorted(results, key=lambda result: names.index(result.model.name))
    rows = []
    for name, group in groupby(ordered, lambda result: result.model.name):
        for place, result in enumerate(group):
            rule = '\\midrule\n' if rows and place == 0 else ''
            model = rule + escape(name if place == 0 else '')
            rows.append((model, *_cells(result, metrics, bool(quoted), titled)))
    caption = (
        f'\\textbf{{{title}{f" on {data}" if quoted else ""}}}: mean $\\pm$ sample standard '
        'deviation over the seeds, of the last evaluation.'
    )
    if any(result.model.named for result in ordered):
        caption += ''.join(f' $^*$ means {one.on_star}.' for one in extensions() if one.on_star)
    if quoted:
        caption += f' The last column quotes {escape("; ".join(sources(quoted)))}.'
    texts = 3 + titled
    return latex_table(text_table(columns, rows, texts), caption, 'l' * texts + 'r' * (len(columns) - texts))


def _measured(title: str, results: Sequence[ArmResult]) -> str:
    """Return the table of what was measured after training: a row a metric, a column an arm."""
    columns, quoted = ['Metric'], []
    for result in results:
        columns.append(escape(result.title or result.name))
        for quotation in result.paper.quotations if result.paper else ():
            quoted.append(quotation)
            columns.append(escape(f'{quotation.short} paper'))
    rows = []
    for metric in dict.fromkeys(name for result in results for name in result.metrics):
        row = [escape(label(metric))]
        for result in results:
            row.append(escape(mean_std(result.summary.last.metrics.get(metric))))
            for quotation in result.paper.quotations if result.paper else ():
                row.append(escape(quotation.figures.get(metric, DASH)))
        rows.append(row)
    caption = (
        f'\\textbf{{{escape(title)}}}: mean $\\pm$ sample standard deviation over the seeds, measured after training.'
    )
    if quoted:
        caption += f' Quoted: {escape("; ".join(sources(quoted)))}.'
    return latex_table(text_table(columns, rows), caption, 'l' + 'r' * (len(columns) - 1))


def _cells(result: ArmResult, metrics: Sequence[str], quoted: bool, titled: bool) -> list[str]:
    """Return the cells of an arm after its model's name."""
    entries = [result.summary.last.metrics.get(metric) for metric in metrics]
    shown = ' / '.join(escape(mean_std(entry)) for entry in entries)
    model, count = result.model, result.parameters
    size = '--' if count is None else f'{count / 1e6:.0f}M' if count >= 1e6 else f'{count / 1e6:.1f}M'
    seeds = max((entry.n for entry in entries if entry), default=0)
    method = model.method + (f', {result.fraction} of the images' if result.fraction < 1 else '')
    cells = [escape(model.pretrained), escape(method), *[escape(result.title or result.name)] * titled]
    cells += [size, str(seeds), shown]
    if quoted:
        figures = [figure for metric in metrics if (figure := paper_figure(result, metric)) != DASH]
        cells.append(escape(' / '.join(figures or [DASH])))
    return cells


def _comparisons(report: Report, which: str) -> str:
    rows = []
    for compared in report.comparisons_at(which):
        pair = escape(report.title_of(compared.arm, compared.baseline)).replace(r'\_', r'\_\allowbreak{}')
        cells = [pair, escape(label(compared.metric))]
        for difference in (compared.welch, compared.paired):
            limits = '--'
            if difference.low is not None:
                limits = f'[{_signed(difference.low)}, {_signed(difference.high)}]'
            cells += [_signed(difference.mean), limits, escape(probability(difference.holm))]
        rows.append(cells)
    interval = rf'{CONFIDENCE * 100:.0f}\,\% interval'
    columns = ['Comparison', 'Metric', 'Welch', interval, '$p$', 'Paired', interval, '$p$']
    caption = (
        f'Differences in points, {which} evaluation. $p$ is corrected by Holm over the comparisons '
        f'of this table, for each test apart; a dash stands where fewer than {LEAST} seeds, or '
        'values without spread, allow no test.'
    )
    column_format = r'>{\raggedright\arraybackslash}p{0.28\linewidth}lrrrrrr'
    return latex_table(text_table(columns, rows, 2), caption, column_format)


def _signed(value: float | None) -> str:
    return escape(DASH) if value is None else f'${number(value, "+.2f")}$'

r"""A report's tables as LaTeX with booktabs, in the layout of the LaPE paper's Tables 3 and 4.

``tables.tex`` is for ``\input`` in a paper whose preamble loads array and booktabs; ``report.tex`` is a document
around it. The paper's own figures stand in a column of their own, headed as the paper's.
"""

import unicodedata
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from mmlape.evaluation.names import TASK_METRICS, label
from mmlape.experiments.formats import DASH, mean_std, number, probability
from mmlape.experiments.report import explanations
from mmlape.experiments.report.arms import ArmResult
from mmlape.experiments.report.content import Report
from mmlape.experiments.report.cost import parameters
from mmlape.experiments.report.tables import paper_figure
from mmlape.experiments.statistics import CONFIDENCE, LEAST

_SPECIAL = {'\\': r'\textbackslash{}', '~': r'\textasciitilde{}', '^': r'\textasciicircum{}', '*': '$^*$'}
_SPECIAL |= {character: f'\\{character}' for character in '&%$#_{}'}
_SPECIAL |= {'–': '--', '−': '$-$', '±': r'$\pm$', '<': '$<$', '>': '$>$', '→': r'$\rightarrow$', '×': r'$\times$'}
_CAPTIONS = {
    'detection': ('Object detection results', 'COCO', r'AP$^\mathrm{box}$ / AP$^\mathrm{mask}$'),
    'segmentation': ('Semantic segmentation results', 'ADE20K', 'val mIoU'),
    'classification': ('Image classification results', 'ImageNet-1K', 'top-1'),
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
    (folder / 'tables.tex').write_text('\n'.join(_tables(report)), encoding='utf-8')
    (folder / 'report.tex').write_text(_DOCUMENT, encoding='utf-8')
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
    for line in explanations.paper(report):
        yield f'% note: {" ".join(line.split())}'
    order = lambda result: list(_CAPTIONS).index(result.task)  # noqa: E731
    known = sorted((result for result in report.results if result.task in _CAPTIONS), key=order)
    for task, results in groupby(known, lambda result: result.task):
        yield _results(task, list(results))
    for which in ('last', 'best'):
        if any(one.which == which for one in report.comparisons):
            yield _comparisons(report, which)


def _results(task: str, results: Sequence[ArmResult]) -> str:
    """Return one of the paper's tables: a block of rows for each model."""
    title, data, metric = _CAPTIONS[task]
    metrics = [name for name in TASK_METRICS[task] if any(name in result.metrics for result in results)]
    if task == 'classification':
        metric = ' / '.join(map(label, metrics))
    quoted = [one for result in results if result.known for one in result.known.quotations]
    title += f' on {data}' if quoted else ''
    papers = f'({", ".join(dict.fromkeys(one.short for one in quoted))} paper)'
    columns = ['Model', 'Pre-trained Model', 'PE Method', r'\#param.', 'seeds', metric]
    columns += [f'{metric} {papers}'] if quoted else []
    early = list(dict.fromkeys((one.metric, one.epoch) for result in results for one in result.early()))
    for name, epoch in early:
        columns += [f'{label(name)}, epoch {epoch}', f'{label(name)}, epoch {epoch} {papers}']
    names = list(dict.fromkeys(result.model.name for result in results))
    ordered = sorted(results, key=lambda result: names.index(result.model.name))
    blocks = []
    for name, group in groupby(ordered, lambda result: result.model.name):
        rows = [
            _row(result, name if place == 0 else '', metrics, bool(quoted), early)
            for place, result in enumerate(group)
        ]
        blocks.append('\n'.join(rows))
    caption = (
        f'\\textbf{{{title}}}: mean $\\pm$ sample standard deviation over the seeds, of the last evaluation. '
        '$^*$ means models pre-trained with LaPE.'
    )
    if quoted:
        caption += f' The last column quotes {escape("; ".join(explanations.sources(quoted)))}.'
    return _float(caption, 'lll' + 'r' * (len(columns) - 3), columns, blocks)


def _row(result: ArmResult, name: str, metrics: Sequence[str], quoted: bool, early: Sequence[tuple[str, int]]) -> str:
    entries = [result.summary['last']['metrics'].get(metric) for metric in metrics]
    shown = [escape(mean_std(entry)) for entry in entries]
    model, count = result.model, parameters(result)
    size = '--' if count is None else f'{count / 1e6:.0f}M' if count >= 1e6 else f'{count / 1e6:.1f}M'
    seeds = max((entry['n'] for entry in entries if entry), default=0)
    method = model.method + (f', {result.fraction} of the images' if result.fraction < 1 else '')
    cells = [escape(name), escape(model.pretrained), escape(method), size, str(seeds), ' / '.join(shown)]
    if quoted:
        figures = [figure for metric in metrics if (figure := paper_figure(result, metric)) != DASH]
        cells.append(escape(' / '.join(figures or [DASH])))
    found = {(one.metric, one.epoch): one for one in result.early()}
    for key in early:
        one = found.get(key)
        cells += [escape(mean_std(one.entry)), one.paper] if one else ['--', '--']
    return f'{" & ".join(cells)} \\\\'


def _comparisons(report: Report, which: str) -> str:
    rows = []
    for one in (one for one in report.comparisons if one.which == which):
        pair = escape(report.title_of(one.arm, one.baseline)).replace(r'\_', r'\_\allowbreak{}')
        cells = [pair, escape(label(one.metric))]
        for found in (one.welch, one.paired):
            limits = '--' if found.low is None else f'[{_signed(found.low)}, {_signed(found.high)}]'
            cells += [_signed(found.mean), limits, escape(probability(found.holm))]
        rows.append(f'{" & ".join(cells)} \\\\')
    interval = rf'{CONFIDENCE * 100:.0f}\,\% interval'
    columns = ['Comparison', 'Metric', 'Welch', interval, '$p$', 'Paired', interval, '$p$']
    caption = (
        f'Differences in points, {which} evaluation. $p$ is corrected by Holm over the comparisons of this table, for '
        f'each test apart; a dash stands where fewer than {LEAST} seeds, or values without spread, allow no test.'
    )
    return _float(caption, r'>{\raggedright\arraybackslash}p{0.28\linewidth}lrrrrrr', columns, ['\n'.join(rows)])


def _signed(value: float | None) -> str:
    return escape(DASH) if value is None else f'${number(value, "+.2f")}$'


def _float(caption: str, alignment: str, columns: Sequence[str], blocks: Sequence[str]) -> str:
    body = '\n\\midrule\n'.join(blocks)
    return '\n'.join((
        r'\begin{table}[ht]',
        r'\centering\small\setlength{\tabcolsep}{4pt}',
        rf'\begin{{tabular}}{{{alignment}}}',
        r'\toprule',
        f'{" & ".join(columns)} \\\\',
        r'\midrule',
        body,
        r'\bottomrule',
        r'\end{tabular}',
        rf'\caption{{{caption}}}',
        r'\end{table}',
        '',
    ))  # fmt: skip

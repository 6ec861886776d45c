"""The figures of a report, as SVG: curves with bands over seeds, differences with intervals, differences of classes.

Colours are Okabe and Ito's, which colour-blind readers can tell apart; every arm also has its own line style.
"""

import math
from collections.abc import Sequence
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from mmlape.evaluation.names import label
from mmlape.experiments.report.arms import ArmResult
from mmlape.experiments.report.content import Comparison, Report
from mmlape.experiments.statistics import INTERVAL
from mmlape.runs.curves import Band, loss_band, metric_band, read_curves

COLOURS = ('#0072B2', '#D55E00', '#009E73', '#CC79A7', '#56B4E9', '#E69F00', '#000000', '#8A6D00')
_STYLES = ('-', '--', '-.', ':')
_CAPTIONS = {
    'segmentation': 'Semantic segmentation',
    'detection': 'Instance segmentation',
    'classification': 'Classification',
}
_GREY = '#555555'
_LONG_NAME = 50
"""Characters of a name that has a line of the legend to itself."""
_MAX_CLASSES = 12
"""Drawn at either end of the sorted classes; the table has them all."""


def draw_curves(report: Report, folder: Path) -> dict[str, Path]:
    """Draw the curves of the arms of each first metric; return the files by caption."""
    curves, places = {}, list(enumerate(report.results))
    for number, metric in enumerate(dict.fromkeys(result.metrics[0] for result in report.results if result.metrics)):
        chosen = [(place, result) for place, result in places if result.metrics and result.metrics[0] == metric]
        path = plot_curves(chosen, folder / f'curves-{number}.svg')
        if path:
            caption = _CAPTIONS.get(chosen[0][1].task, label(metric))
            curves[f'{caption}, {label(metric)}' if caption in curves else caption] = path
    return curves


def colour(place: int) -> str:
    """Return the colour of the arm at a place."""
    return COLOURS[place % len(COLOURS)]


def plot_curves(results: Sequence[tuple[int, ArmResult]], path: Path) -> Path | None:
    """Draw loss and first metric over the iterations: mean and one standard deviation over the averaged runs.

    Args:
        results: Arms with a first metric in common, each with its place among the report's.
        path: The file to write; it is returned, or None if nothing was logged.
    """
    metric = results[0][1].metrics[0]
    figure = Figure(figsize=(9.6, 4), layout='constrained')
    left, right = figure.subplots(1, 2)
    handles = []
    for place, result in results:
        logged = [read_curves(run.folder) for run in result.counted]
        bands = [loss_band(logged), metric_band(logged, metric)]
        for axes, band, marker in zip((left, right), bands, ('', 'o')):
            if band is not None:
                _draw_band(axes, band, place, marker)
        if any(bands):
            n = max(band.n for band in bands if band)
            name = f'{text_of(result.name)} ({n} seed{"s" * (n != 1)})'
            handles.append(Line2D([], [], ls=style(place), color=colour(place), lw=1.8, label=name))
        if result.untrained(metric) is not None:
            right.plot(0, result.untrained(metric), 'D', color=colour(place), ms=5, clip_on=False)
    if not handles:
        return None
    left.set(xlabel='iteration', ylabel='training loss')
    right.set(xlabel='iteration', ylabel=f'{label(metric)}, validation')
    if any(result.untrained(metric) is not None for _, result in results):
        right.plot([], [], 'D', color=_GREY, ms=5, label='untrained')
        right.legend(frameon=False, loc='lower right')
    for axes in (left, right):
        _tidy(axes)
        axes.set_xlim(left=0)
        axes.locator_params(axis='x', nbins=5)
    left.set_ylim(bottom=0)
    columns = 2 if max(len(handle.get_label()) for handle in handles) < _LONG_NAME else 1
    figure.set_figheight(3.6 + 0.22 * math.ceil(len(handles) / columns))
    figure.legend(handles=handles, loc='outside lower center', ncols=columns, frameon=False)
    return save_figure(figure, path)


def style(place: int) -> str:
    """Return the line style of the arm at a place; no two of 32 share both colour and style."""
    return _STYLES[(place + place // len(COLOURS)) % len(_STYLES)]


def _draw_band(axes: Axes, band: Band, place: int, marker: str) -> None:
    """Draw a mean, and its deviation if there is one."""
    options = dict(ls=style(place), marker=marker, color=colour(place), lw=1.8, ms=3.5)
    axes.plot(band.steps, band.mean, **options)
    if band.std is not None:
        low, high = band.mean - band.std, band.mean + band.std
        axes.fill_between(band.steps, low, high, color=colour(place), alpha=0.18, lw=0)


def plot_differences(report: Report, path: Path) -> Path | None:
    """Draw the differences of the last evaluation with both intervals; return None if there are none."""
    chosen = [compared for compared in report.comparisons_at('last') if compared.welch.mean is not None][::-1]
    if not chosen:
        return None
    titles = [report.title_of(compared.arm, compared.baseline) for compared in chosen]
    figure, axes = _rows([f'{title}\n{label(one.metric)}' for title, one in zip(titles, chosen)], 1.1, 0.62)
    for name, test, shift, ink, marker in (
        ("Welch's", 'welch', 0.12, COLOURS[0], 'o'),
        ('paired', 'paired', -0.12, COLOURS[1], 's'),
    ):
        axes.plot([], [], f'{marker}-', color=ink, label=f'{name} {INTERVAL}')
        for place, compared in enumerate(chosen):
            difference = getattr(compared, test)
            if difference.mean is None:
                continue
            if difference.low is not None:
                axes.plot((difference.low, difference.high), (place + shift,) * 2, '-', color=ink, lw=2.4)
            axes.plot(difference.mean, place + shift, marker, color=ink, ms=6)
    axes.set_xlabel('points')
    figure.legend(loc='outside lower center', ncols=2, frameon=False)
    return save_figure(figure, path)


def plot_classes(comparisons: Sequence[Comparison], title: str, path: Path) -> Path:
    """Draw the sorted differences of classes of a pair as bars with Welch's interval; of many, those at either end."""
    many = len(comparisons) > 2 * _MAX_CLASSES
    chosen = [*comparisons[:_MAX_CLASSES], *comparisons[-_MAX_CLASSES:]] if many else list(comparisons)
    figure, axes = _rows([str(compared.name) for compared in reversed(chosen)], 1.0, 0.27)
    for place, compared in enumerate(reversed(chosen)):
        gain = compared.welch
        axes.barh(place, gain.mean, color=COLOURS[0] if gain.mean >= 0 else COLOURS[1], height=0.7)
        if gain.low is not None:
            axes.plot((gain.low, gain.high), (place, place), '-', color='#222222', lw=1.1)
    if many:
        axes.axhline(_MAX_CLASSES - 0.5, color=_GREY, lw=0.8, ls=':')
    axes.set_xlabel(f'{label(comparisons[0].metric)}, {text_of(title)}, points')
    return save_figure(figure, path)


def _rows(names: Sequence[str], margin: float, height: float) -> tuple[Figure, Axes]:
    """Return a figure of a row for each name, from below, of a height in inches, and its axes with a line at zero."""
    figure, axes = new_axes((9.6, margin + height * len(names)))
    axes.set_yticks(range(len(names)), list(map(text_of, names)))
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.axvline(0, color=_GREY, lw=1)
    return figure, axes


def text_of(name: str) -> str:
    """Escape dollars, between which Matplotlib would read mathematics."""
    return name.replace('$', r'\$')


def new_axes(size: tuple[float, float]) -> tuple[Figure, Axes]:
    """Return a figure of a size in inches, and its axes."""
    figure = Figure(figsize=size, layout='constrained')
    axes = figure.subplots()
    _tidy(axes)
    return figure, axes


def _tidy(axes: Axes) -> None:
    axes.grid(alpha=0.3)
    axes.set_axisbelow(True)
    axes.spines[['top', 'right']].set_visible(False)


def save_figure(figure: Figure, path: Path) -> Path:
    """Write an SVG that is the same for the same content."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context({'svg.hashsalt': 'mmlape', 'svg.fonttype': 'path'}):
        figure.savefig(path, format='svg', metadata={'Date': None, 'Creator': None})
    return path

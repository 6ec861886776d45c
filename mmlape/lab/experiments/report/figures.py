"""The figures of a report, as SVG and PDF: curves with bands over seeds, differences with intervals, also of classes.

Arms that differ only in the fraction of the training images are drawn against it, as DPN's Table 5 has them.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from mmlape.console.figures import COLOURS, from_zero, look, new_axes, save_figure, tidy, wrapped
from mmlape.lab.evaluation.metric_names import label
from mmlape.lab.experiments.report.arms import ArmResult
from mmlape.lab.experiments.report.report_content import Comparison, Report
from mmlape.lab.experiments.statistics import INTERVAL
from mmlape.lab.runs.curves import Band, band_of, read_curves
from mmlape.lab.runs.identity import digest

_GREY = '#555555'
_WIDTH, _TEXT = 9.6, 8.5
"""Inches of a figure, and points of its text."""
_LABEL, _LEGEND, _LINE = 40, 56, 0.165
"""Characters of a label at the left, a third of the width, and of one in the legend; inches of a
line."""
_MARKS = 6
"""Markers on a long curve."""
_MAX_PANELS = 6
_MAX_CLASSES = 12
"""Drawn at either end of the sorted classes; the table has them all."""


def draw_curves(report: Report, folder: Path) -> dict[str, Path]:
    """Draw the curves of the arms of each first metric; return the files by caption."""
    curves = {}
    for number, metric in enumerate(dict.fromkeys(result.metrics[0] for result in report.results if result.metrics)):
        chosen = [(place, one) for place, one in enumerate(report.results) if one.metrics[:1] == (metric,)]
        path = _plot_curves(chosen, metric, folder / f'curves-{number}.svg', report.baselines)
        if path:
            curves[label(metric)] = path
    return curves


def _plot_curves(
    results: Sequence[tuple[int, ArmResult]], metric: str, path: Path, baselines: Collection[str]
) -> Path | None:
    """Draw loss and metric of arms at their places: mean and one deviation over the runs.

    None if none was logged.
    """
    figure = Figure(figsize=(_WIDTH, 4), layout='constrained')
    left, right = figure.subplots(1, 2)
    handles = []
    for place, result in results:
        logged = [read_curves(run.folder) for run in result.counted]
        bands = [band_of(logged, 'loss'), band_of(logged, metric)]
        drawn = look(place, result.name in baselines)
        for axes, band in zip((left, right), bands):
            if band is not None:
                _draw_band(axes, band, drawn, place, 0.18 if len(results) < 5 else 0.08)
        if any(bands):
            n = max(band.n for band in bands if band)
            name = f'{result.name} ({n} seed{"s" * (n != 1)}{", baseline" * (result.name in baselines)})'
            handles.append(Line2D([], [], **drawn, label=wrapped(name, _LEGEND)))
    if not handles:
        return None
    tidy(left, right)
    for axes, name in ((left, 'training loss'), (right, f'{label(metric)}, validation')):
        axes.set(xlabel='iteration', ylabel=name)
        from_zero(axes, 'x')
        axes.locator_params(axis='x', nbins=5)
    from_zero(left, 'y')
    lines = [handle.get_label().count('\n') + 1 for handle in handles]
    half = (len(lines) + 1) // 2
    legend = 0.3 + _LINE * max(sum(lines[:half]), sum(lines[half:]))
    figure.set_figheight(legend + max(3.2, 2 * legend))
    look_of_legend = dict(frameon=False, fontsize=_TEXT, handlelength=4)
    figure.legend(handles=handles, loc='outside lower center', ncols=2, **look_of_legend)
    return save_figure(figure, path)


def _draw_band(axes: Axes, band: Band, drawn: dict, place: int, alpha: float) -> None:
    """Draw a mean, and its deviation if there is one.

    Markers of several arms stand at different places.
    """
    every = max(1, len(band.steps) // _MARKS)
    axes.plot(band.steps, band.mean, markevery=(place % every, every), **drawn)
    if band.std is not None:
        bounds = band.mean - band.std, band.mean + band.std
        axes.fill_between(band.steps, *bounds, color=drawn['color'], alpha=alpha, lw=0)


def plot_differences(report: Report, path: Path) -> Path | None:
    """Draw the differences of the last evaluation with both intervals, a panel a metric.

    Return None where too few seeds give no interval, and for more metrics than a figure has room for.
    """
    chosen = [compared for compared in report.comparisons_at('last') if compared.welch.mean is not None]
    # there may be too few seeds for any
    if all(test.low is None for compared in chosen for test in (compared.welch, compared.paired)):
        return None
    pairs = list(dict.fromkeys((compared.arm, compared.baseline) for compared in reversed(chosen)))
    metrics = list(dict.fromkeys(compared.metric for compared in chosen))
    if len(metrics) > _MAX_PANELS:
        return None
    single = len({baseline for _, baseline in pairs}) == 1
    figure, panels = _rows([pair[0] if single else report.title_of(*pair) for pair in pairs], 0.14, len(metrics))
    for axes, metric in zip(panels, metrics):
        axes.set_xlabel(label(metric))
        axes.locator_params(axis='x', nbins=max(2, 8 // len(metrics)))
    tests = [(f"Welch's {INTERVAL}", 'welch', 0.15, COLOURS[0], 'o-'),
             (f'paired {INTERVAL}', 'paired', -0.15, COLOURS[1], 's-')]  # fmt: skip
    for name, test, shift, ink, marker in tests:
        panels[0].plot([], [], marker, color=ink, label=name)
        for compared in chosen:
            difference, axes = getattr(compared, test), panels[metrics.index(compared.metric)]
            place = pairs.index((compared.arm, compared.baseline)) + shift
            if difference.low is not None:
                axes.plot((difference.low, difference.high), (place, place), '-', color=ink, lw=2.4)
            if difference.mean is not None:
                axes.plot(difference.mean, place, marker[0], color=ink, ms=5)
    title = wrapped(f'points above the baseline {pairs[0][1]}', 90) if single else 'points'
    figure.legend(title=title, loc='outside lower center', ncols=2, frameon=False, fontsize=_TEXT)
    return save_figure(figure, path)


def plot_classes(comparisons: Sequence[Comparison], title: str, path: Path) -> Path:
    """Draw the sorted differences of classes of a pair as bars with Welch's interval.

    Of many, those at either end.
    """
    many = len(comparisons) > 2 * _MAX_CLASSES
    chosen = [*comparisons[:_MAX_CLASSES], *comparisons[-_MAX_CLASSES:]] if many else list(comparisons)
    figure, (axes,) = _rows([str(compared.name) for compared in reversed(chosen)], 0.08)
    for place, compared in enumerate(reversed(chosen)):
        gain = compared.welch
        axes.barh(place, gain.mean, color=COLOURS[0] if gain.mean >= 0 else COLOURS[1], height=0.7)
        if gain.low is not None:
            axes.plot((gain.low, gain.high), (place, place), '-', color='#222222', lw=1.1)
    if many:
        axes.axhline(_MAX_CLASSES - 0.5, color=_GREY, lw=0.8, ls=':')
    axes.set_xlabel(wrapped(f'{label(comparisons[0].metric)}, {title}, points', 90))
    return save_figure(figure, path)


def _rows(names: Sequence[str], space: float, panels: int = 1) -> tuple[Figure, Sequence[Axes]]:
    """Return a figure with a row for each name, from below, and its panels side by side with a line at zero.

    Names take at most a third of the width; ``space`` is in inches, between the lines of two rows.
    """
    labels = [wrapped(name, _LABEL) for name in names]
    height = space + _LINE * max(text.count('\n') + 1 for text in labels)
    figure = Figure(figsize=(_WIDTH, 1 + height * len(names)), layout='constrained')
    every = figure.subplots(1, panels, sharey=True, squeeze=False)[0]
    tidy(*every)
    every[0].set_yticks(range(len(names)), labels, fontsize=_TEXT)
    every[0].set_ylim(-0.6, len(names) - 0.4)
    for axes in every:
        axes.axvline(0, color=_GREY, lw=1)
    return figure, every


@dataclass(frozen=True)
class Series:
    """The arms of one method, by the fraction of the training images, the smallest first."""

    name: str
    arms: dict[Fraction, ArmResult]
    metric: str  # the first of those to compare


def series_of(report: Report) -> list[Series]:
    """Return the series of a report, of at least two fractions each."""
    groups: dict[tuple, list[ArmResult]] = {}
    for result in report.results:
        identity, settings = result.identity, result.settings
        if settings and result.counted:
            rest = {key: value for key, value in settings.items() if key != 'data_fraction'}
            key = (digest(rest), str(identity.checkpoint), identity.total_batch, identity.batch_policy, identity.amp)
            groups.setdefault(key, []).append(result)
    return [series for group in groups.values() for series in _series(group)]


def _series(group: Sequence[ArmResult]) -> Iterator[Series]:
    """Yield a series for each ``data_fraction_seed``; an arm that was trained on all images belongs to each."""
    seeds = list(dict.fromkeys(result.fraction_seed for result in group if result.fraction < 1))
    for seed in seeds:
        arms = {arm.fraction: arm for arm in group if arm.fraction == 1 or arm.fraction_seed == seed}
        first = next(iter(arms.values()))
        name = re.sub(r'\+\d+of\d+$', '', first.name)
        name += f', data_fraction_seed={seed}' if len(seeds) > 1 else ''
        if len(arms) > 1 and first.metrics:
            yield Series(name, dict(sorted(arms.items())), first.metrics[0])


def plot_fractions(report: Report, folder: Path) -> dict[str, Path]:
    """Draw each first metric against the fraction, with intervals; return the files by caption."""
    every, files = list(enumerate(series_of(report))), {}
    for number, metric in enumerate(dict.fromkeys(series.metric for _, series in every)):
        path = folder / f'fractions-{number}.svg'
        _plot_series([(place, series) for place, series in every if series.metric == metric], metric, path)
        files[f'{label(metric)} by the fraction of the training images'] = path
    return files


def _plot_series(every: Sequence[tuple[int, Series]], metric: str, path: Path) -> None:
    figure, axes = new_axes((6.4, 4.4))
    for place, series in every:
        averages = {share: arm.summary.last.metrics.get(metric) for share, arm in series.arms.items()}
        entries = {float(share): entry for share, entry in averages.items() if entry and entry.n}
        seeds = ', '.join(dict.fromkeys(str(entry.n) for entry in entries.values()))
        drawn = look(place)
        means = [entry.mean for entry in entries.values()]
        axes.plot(list(entries), means, **drawn, label=wrapped(f'{series.name} (n={seeds})', 70))
        for x, entry in entries.items():
            if entry.low is not None:
                axes.plot((x, x), (entry.low, entry.high), '_-', color=drawn['color'], lw=1.4, ms=8)
        quoted = {}
        for share, arm in series.arms.items():
            quotation = arm.paper.fractions.get(share) if arm.paper else None
            if quotation and metric in quotation.figures:
                quoted[float(share)] = float(quotation.figures[metric].split()[0])
        if quoted:
            name = wrapped(f"{series.name}, the paper's", 70)
            axes.plot(list(quoted), list(quoted.values()), 'x', color=drawn['color'], ms=7, label=name)
    ticks = sorted({share for _, series in every for share in series.arms})
    axes.set_xscale('log', base=2)
    axes.set_xticks([float(share) for share in ticks], [str(share) for share in ticks])
    axes.minorticks_off()
    axes.set(xlabel='fraction of the training images', ylabel=f'{label(metric)}, validation')
    figure.legend(loc='outside lower center', frameon=False, handlelength=4)
    save_figure(figure, path)

"""Arms that differ only in the fraction of the training images that they are trained on: a table and a figure.

The layout is that of DPN's Table 5; the figure is of the same numbers, with 95 % intervals.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import pandas as pd

from mmlape.figures import look, new_axes, save_figure, wrapped
from mmlape.lab.evaluation.names import label
from mmlape.lab.experiments.averages import DASH, Average, interval, mean_std_n
from mmlape.lab.experiments.report.arms import ArmResult
from mmlape.lab.experiments.report.content import Report
from mmlape.lab.experiments.statistics import INTERVAL
from mmlape.lab.runs.identity import digest
from mmlape.tables import text_table


@dataclass(frozen=True)
class Series:
    """The arms of one method, by the fraction of the training images, the smallest first."""

    name: str
    arms: dict[Fraction, ArmResult]

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics to compare."""
        return next(iter(self.arms.values())).metrics

    def entry(self, share: Fraction, metric: str) -> Average | None:
        """Return the average of a metric at the last evaluation; None if there is no such arm."""
        return self.arms[share].summary.last.metrics.get(metric) if share in self.arms else None

    def paper(self, share: Fraction, metric: str) -> str:
        """Return a paper's figure, as it is printed; a dash if there is none."""
        paper = next(iter(self.arms.values())).paper
        quoted = paper.fractions.get(share) if paper else None
        return quoted.figures.get(metric, DASH) if quoted else DASH


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


def _series(group: Sequence[ArmResult]) -> list[Series]:
    """Return a series for each ``data_fraction_seed``.

    An arm that was trained on all images belongs to each.
    """
    seeds = list(dict.fromkeys(result.fraction_seed for result in group if result.fraction < 1))
    every = []
    for seed in seeds:
        arms = {arm.fraction: arm for arm in group if arm.fraction == 1 or arm.fraction_seed == seed}
        name = re.sub(r'\+\d+of\d+$', '', next(iter(arms.values())).name)
        name += f', data_fraction_seed={seed}' if len(seeds) > 1 else ''
        every.append(Series(name, dict(sorted(arms.items()))))
    return [series for series in every if len(series.arms) > 1 and series.metrics]


def fraction_table(report: Report) -> pd.DataFrame:
    """Build the table: a column a fraction.

    For each series and metric mean, interval and the paper's figure.
    """
    every = series_of(report)
    shares = sorted({share for series in every for share in series.arms})
    rows = []
    for series in every:
        for metric in series.metrics:
            lines = {
                'mean ± std (n)': [mean_std_n(series.entry(share, metric)) for share in shares],
                INTERVAL: [interval(series.entry(share, metric)) for share in shares],
                "paper's figure": [series.paper(share, metric) for share in shares],
            }
            rows += [
                (series.name, label(metric), name, *cells) for name, cells in lines.items() if set(cells) != {DASH}
            ]
    return text_table(('series', 'metric', 'of the images', *map(str, shares)), rows, 3)


def plot_fractions(report: Report, folder: Path) -> dict[str, Path]:
    """Draw each first metric against the fraction, with intervals; return the files by caption."""
    every, files = list(enumerate(series_of(report))), {}
    for number, metric in enumerate(dict.fromkeys(series.metrics[0] for _, series in every)):
        path = folder / f'fractions-{number}.svg'
        _plot([(place, series) for place, series in every if series.metrics[0] == metric], metric, path)
        files[f'{label(metric)} by the fraction of the training images'] = path
    return files


def _plot(every: Sequence[tuple[int, Series]], metric: str, path: Path) -> None:
    figure, axes = new_axes((6.4, 4.4))
    for place, series in every:
        entries = {share: entry for share in series.arms if (entry := series.entry(share, metric)) and entry.n}
        shares, means = list(map(float, entries)), [entry.mean for entry in entries.values()]
        seeds = ', '.join(dict.fromkeys(str(entry.n) for entry in entries.values()))
        drawn = look(place)
        axes.plot(shares, means, **drawn, label=wrapped(f'{series.name} (n={seeds})', 70))
        for share, entry in zip(shares, entries.values()):
            if entry.low is not None:
                axes.plot((share, share), (entry.low, entry.high), '_-', color=drawn['color'], lw=1.4, ms=8)
        quoted = {float(share): text for share in series.arms if (text := series.paper(share, metric)) != DASH}
        if quoted:
            figures = [float(text.split()[0]) for text in quoted.values()]
            name = wrapped(f"{series.name}, the paper's", 70)
            axes.plot(list(quoted), figures, 'x', color=drawn['color'], ms=7, label=name)
    ticks = sorted({share for _, series in every for share in series.arms})
    axes.set_xscale('log', base=2)
    axes.set_xticks([float(share) for share in ticks], [str(share) for share in ticks])
    axes.minorticks_off()
    axes.set(xlabel='fraction of the training images', ylabel=f'{label(metric)}, validation')
    figure.legend(loc='outside lower center', frameon=False, handlelength=4)
    save_figure(figure, path)

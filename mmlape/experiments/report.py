"""The report of experiments: a table of trained beside untrained, training curves, and pictures, as Markdown.

An arm is one configuration with its runs over seeds. Every number in the table is an average of `aggregate.summarise`.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from matplotlib import colormaps
from matplotlib.figure import Figure
from rich.table import Table

from mmlape.experiments.aggregate import EVALUATIONS, Run, is_defined, main_metrics, show, summarise

COLUMNS = ('arm', 'task', 'metric', 'seeds', 'untrained', 'last: mean ± std (n)', 'best: mean ± std (n)')


@dataclass(frozen=True)
class Arm:
    """One configuration of a comparison.

    Args:
        name: As in the table and in the curves' legend.
        task: 'detection', 'segmentation' or 'classification'.
        runs: Its runs, from `aggregate.read_seeds` or `aggregate.read_run`.
        metrics: Which to show; by default the task's usual ones.
        untrained: The same metrics before training, where they were measured.
    """

    name: str
    task: str
    runs: Sequence[Run]
    metrics: Sequence[str] = ()
    untrained: dict[str, float | None] = field(default_factory=dict)

    def rows(self) -> list[tuple[str, ...]]:
        """One row of `COLUMNS` for each metric."""
        summary = summarise(self.runs)
        seeds = ', '.join(map(str, summary['seeds'])) or 'none finished'
        rows = []
        for metric in self.metrics or main_metrics(summary)[:3] or ('-',):
            entries = [summary[which]['metrics'].get(metric) for which in EVALUATIONS]
            cells = (_spread(metric, entry) for entry in entries)
            rows.append((self.name, self.task, metric, seeds, show(metric, self.untrained.get(metric)), *cells))
        return rows


def _spread(metric: str, entry: dict | None) -> str:
    """'67.75 ± 0.94 (2)'; without the deviation for a single run."""
    if entry is None or entry['mean'] is None:
        return '-'
    deviation = '' if entry['std'] is None else f' ± {show(metric, entry["std"])}'
    return f'{show(metric, entry["mean"])}{deviation} ({entry["n"]})'


def console_table(arms: Sequence[Arm], title: str) -> Table:
    """The results for the terminal."""
    table = Table(*COLUMNS, title=title)
    for arm in arms:
        for row in arm.rows():
            table.add_row(*row)
        table.add_section()
    return table


def markdown_table(arms: Sequence[Arm]) -> str:
    """The results as a Markdown table."""
    rows = [COLUMNS, ('---',) * 4 + ('---:',) * 3, *(row for arm in arms for row in arm.rows())]
    return '\n'.join(f'| {" | ".join(cell.replace("|", "/") for cell in row)} |' for row in rows)


@dataclass(frozen=True)
class Curves:
    """What MMEngine logged during a run: ``loss`` and ``metrics[name]`` map iterations to values."""

    loss: dict[int, float]
    metrics: dict[str, dict[int, float]]


def read_curves(work_dir: str | Path) -> Curves:
    """Reads ``*/vis_data/scalars.json`` of a work dir; of iterations that a resumed run repeated, the later count."""
    loss: dict[int, float] = {}
    metrics: dict[str, dict[int, float]] = {}
    for file in sorted(Path(work_dir).glob('*/vis_data/scalars.json')):
        iteration = 0
        for line in file.read_text(encoding='utf-8').splitlines():
            try:
                row = json.loads(line)
            except ValueError:  # the last line of a run that was killed
                continue
            if 'loss' in row:
                iteration, by_epoch = row['iter'], 'epoch' in row
                loss[iteration] = row['loss']
                continue
            # A validation is logged at its iteration, or, in a run that counts epochs, at its epoch.
            step = iteration if iteration and by_epoch else row.get('step', iteration)
            for name, value in row.items():
                numeric = name not in ('step', 'time', 'data_time') and isinstance(value, int | float)
                if numeric and is_defined(name, value):
                    metrics.setdefault(name, {})[step] = value
    return Curves(dict(sorted(loss.items())), {name: dict(sorted(points.items())) for name, points in metrics.items()})


def plot_curves(arms: Sequence[Arm], path: str | Path, metric: str | None = None) -> Path:
    """Draws loss and a metric over the iterations: a line for each seed, a colour for each arm.

    Args:
        arms: Arms that share the metric.
        path: The picture to write.
        metric: By default the first arm's first one.

    Returns:
        The path.
    """
    metric = metric or arms[0].rows()[0][2]
    figure = Figure(figsize=(11, 4.2), layout='constrained')
    left, right = figure.subplots(1, 2)
    for number, arm in enumerate(arms):
        colour = colormaps['tab10'](number % 10)
        found = [curves for curves in (read_curves(run.folder) for run in arm.runs) if curves.loss]
        for place, curves in enumerate(found):
            label = f'{arm.name} ({len(found)} seed{"s" * (len(found) != 1)})' if place == 0 else None
            left.plot(list(curves.loss), list(curves.loss.values()), color=colour, alpha=0.75, lw=1.2, label=label)
            points = curves.metrics.get(metric, {})
            right.plot(list(points), list(points.values()), 'o-', color=colour, alpha=0.75, lw=1.5, ms=4)
        start = arm.untrained.get(metric)
        if start is not None:
            right.axhline(start, color=colour, ls=':', lw=1.2)
    left.set(xlabel='iteration', ylabel='training loss', title='loss')
    right.set(xlabel='iteration', ylabel=metric, title=f'{metric} on the validation images')
    if any(arm.untrained.get(metric) is not None for arm in arms):
        right.plot([], [], ':', color='0.3', lw=1.2, label='untrained')
        right.legend(frameon=False, loc='best')
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.spines[['top', 'right']].set_visible(False)
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
    figure.legend(
        *left.get_legend_handles_labels(), loc='outside lower center', ncols=min(3, len(arms)), frameon=False
    )
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    return Path(path)


def write_report(
    path: str | Path,
    title: str,
    arms: Sequence[Arm],
    curves: dict[str, Path] | None = None,
    pictures: dict[str, Sequence[Path]] | None = None,
    introduction: str = '',
    notes: Sequence[str] = (),
) -> Path:
    """Writes the report as Markdown; links to pictures are relative, so that its folder can be moved.

    Args:
        path: The file to write.
        title: Its heading.
        arms: The table's contents.
        curves: Caption and picture of training curves.
        pictures: Caption and pictures of predictions beside ground truth.
        introduction: A paragraph before the table.
        notes: Sentences after it.

    Returns:
        The path.
    """
    path = Path(path)
    parts = [f'# {title}', introduction, '## Results', markdown_table(arms), _legend(arms)]
    parts += ['\n'.join(f'- {note}' for note in notes)]
    if curves:
        parts += ['## Training curves', *(f'**{name}**\n\n{_link(picture, path)}' for name, picture in curves.items())]
    if pictures:
        parts += ['## Predictions beside ground truth']
        parts += [
            '\n\n'.join([f'**{name}**', *(_link(one, path) for one in group)]) for name, group in pictures.items()
        ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('\n\n'.join(part for part in parts if part) + '\n', encoding='utf-8')
    return path


def _legend(arms: Sequence[Arm]) -> str:
    """What the table's words mean, and which runs are not in it."""
    text = (
        'Last is the evaluation after the last iteration; best is the best evaluation of each run, picked on the '
        'images that it is measured on. The deviation is the sample standard deviation over seeds; n in brackets. '
        'AP is in [0, 1], the others are in percent.'
    )
    unfinished = [
        f'{arm.name}, seed {seed}: {state}'
        for arm in arms
        for seed, state in summarise(arm.runs)['unfinished'].items()
    ]
    return text + (f'\n\nNot counted: {"; ".join(unfinished)}.' if unfinished else '')


def _link(picture: str | Path, report: Path) -> str:
    target = os.path.relpath(picture, report.parent).replace(os.sep, '/').replace(' ', '%20')
    return f'![{Path(picture).stem}]({target})'

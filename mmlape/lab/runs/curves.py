"""Logged curves: loss and metrics over the iterations, one run's figure, mean and spread over seeds."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
from matplotlib.figure import Figure

from mmlape.console.figures import from_zero, save_figure, tidy
from mmlape.files import read_json_lines
from mmlape.lab.evaluation.metric_names import RANKING, is_defined, label, points
from mmlape.lab.runs.schema import RunRecord, read_record

FIGURE = 'curves.png'
MOST_POINTS = 240
"""Points of a drawn curve; more are averaged in groups, which also smooths the loss."""


Curves: TypeAlias = dict[str, dict[int, float]]
"""The logged curves of a run: what the iterations are mapped to, of the training's 'loss' and of each metric."""


@dataclass(frozen=True)
class Band:
    """A curve over ``n`` runs: iterations, mean and sample standard deviation, each (P,).

    No deviation for one run.
    """

    steps: np.ndarray
    mean: np.ndarray
    std: np.ndarray | None
    n: int


def read_scalars(file: Path) -> Iterator[dict]:
    """Yield the rows of a ``scalars.json``, the log of MMEngine's visualiser."""
    fix = 'restore the file; or delete it, without which the curves have gaps'
    yield from (row for row in read_json_lines(file, fix) if isinstance(row, dict))


def log_files(work_dir: str | Path) -> list[Path]:
    """Return every ``*/vis_data/scalars.json`` of a work dir, oldest first.

    Later ones replace what they repeat. The order is that of ``parts`` in ``run.json``; others come
    before those, by their first iteration. Names, which are times, do not decide: a clock may have
    been set back.
    """
    parts = (read_record(work_dir) or RunRecord()).parts
    order = {name: place for place, name in enumerate(parts)}

    def place(file: Path) -> tuple[int, int]:
        first = next((row['iter'] for row in read_scalars(file) if 'iter' in row), 0)
        return order.get(file.parts[-3], -1), first

    return sorted(sorted(Path(work_dir).glob('*/vis_data/scalars.json')), key=place)


def read_curves(work_dir: str | Path) -> Curves:
    """Read all :func:`log_files` of a work dir."""
    curves: Curves = {'loss': {}}
    iteration, by_epoch = 0, False  # a resumed run may start with an evaluation
    for file in log_files(work_dir):
        for row in read_scalars(file):
            if 'loss' in row:
                iteration, by_epoch = row['iter'], 'epoch' in row
                curves['loss'][iteration] = row['loss']
                continue
            # A validation is logged at its iteration, or, in a run that counts epochs, at its
            # epoch.
            step = iteration if iteration and by_epoch else row.get('step', iteration)
            for name, value in row.items():
                numeric = name not in ('step', 'time', 'data_time') and isinstance(value, int | float)
                if numeric and is_defined(name, value):
                    curves.setdefault(name, {})[step] = value
    return {name: dict(sorted(values.items())) for name, values in curves.items()}


def band_of(runs: Sequence[Curves], name: str) -> Band | None:
    """Return mean and spread of the loss or of a metric, in points, at the common iterations of runs that logged it.

    None if there are none.
    """
    rows = [{step: points(name, value) for step, value in run[name].items()} for run in runs if run.get(name)]
    common = sorted(set.intersection(*(set(row) for row in rows))) if rows else []
    if not common:
        return None
    values = np.array([[row[step] for step in common] for row in rows], dtype=float)  # (runs, P)
    groups = np.array_split(np.arange(len(common)), min(len(common), MOST_POINTS))
    steps = np.array([np.mean(np.take(common, group)) for group in groups])
    values = np.stack([values[:, group].mean(axis=1) for group in groups], axis=1)
    std = values.std(axis=0, ddof=1) if len(rows) > 1 else None
    return Band(steps, values.mean(axis=0), std, len(rows))


def plot_run(work_dir: str | Path) -> Path | None:
    """Draw a run's training loss and validation metrics into ``work_dir/curves.png``.

    None if no loss was logged.
    """
    curves = read_curves(work_dir)
    loss = band_of([curves], 'loss')
    if loss is None:
        return None
    figure = Figure(figsize=(9.6, 3.6), layout='constrained')
    left, right = figure.subplots(1, 2)
    left.plot(loss.steps, loss.mean, 'o' if len(loss.steps) == 1 else '-', lw=1.5)
    left.set(xlabel='iteration', ylabel='training loss')
    shown = [name for name in RANKING if name in curves]
    for name in shown:
        band = band_of([curves], name)
        right.plot(band.steps, band.mean, 'o-', ms=4, lw=1.5, label=label(name))
    right.set(xlabel='iteration', ylabel='validation, points')
    if shown:
        right.legend(frameon=False)
    tidy(left, right)
    from_zero(left, 'xy')
    from_zero(right, 'x')
    return save_figure(figure, Path(work_dir) / FIGURE)

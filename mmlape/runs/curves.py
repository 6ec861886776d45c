"""What was logged during the runs of an arm: loss and metrics over the iterations, mean and spread over seeds."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mmlape.evaluation.names import is_defined, points

MOST_POINTS = 240
"""Of a drawn curve; more are averaged together, which also tames the noise of the loss."""


@dataclass(frozen=True)
class Curves:
    """What MMEngine logged during a run: ``loss`` and ``metrics[name]`` map iterations to values."""

    loss: dict[int, float]
    metrics: dict[str, dict[int, float]]


@dataclass(frozen=True)
class Band:
    """A curve over seeds.

    Attributes:
        steps: (P,), iterations.
        mean: (P,)
        std: (P,), sample standard deviation; None for one run.
        n: How many runs.
    """

    steps: np.ndarray
    mean: np.ndarray
    std: np.ndarray | None
    n: int


def read_curves(work_dir: str | Path) -> Curves:
    """Reads ``*/vis_data/scalars.json`` of a work dir; of iterations that a resumed run repeated, the later count."""
    loss: dict[int, float] = {}
    metrics: dict[str, dict[int, float]] = {}
    for file in sorted(Path(work_dir).glob('*/vis_data/scalars.json')):
        iteration, by_epoch = 0, False
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


def loss_band(runs: Sequence[Curves]) -> Band | None:
    """The loss over seeds; None if none was logged."""
    return band([curves.loss for curves in runs])


def metric_band(runs: Sequence[Curves], metric: str) -> Band | None:
    """A metric over seeds, in points; None if none was logged."""
    rows = [curves.metrics.get(metric, {}) for curves in runs]
    return band([{step: points(metric, value) for step, value in row.items()} for row in rows])


def band(rows: Sequence[dict[int, float]]) -> Band | None:
    """Mean and spread of curves at the iterations that they have in common; None if there are none."""
    rows = [row for row in rows if row]
    common = sorted(set.intersection(*(set(row) for row in rows))) if rows else []
    if not common:
        return None
    values = np.array([[row[step] for step in common] for row in rows], dtype=float)  # (runs, P)
    groups = np.array_split(np.arange(len(common)), min(len(common), MOST_POINTS))
    steps = np.array([np.mean(np.take(common, group)) for group in groups])
    values = np.stack([values[:, group].mean(axis=1) for group in groups], axis=1)
    std = values.std(axis=0, ddof=1) if len(rows) > 1 else None
    return Band(steps, values.mean(axis=0), std, len(rows))

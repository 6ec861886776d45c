"""One trained model at several test sizes: how each kind of position encoding bears sizes that it was not trained at.

The model stays as it is, and its PE is resized inside. What changes are the sizes of the test pipeline, and those of
the sliding window, all by the same factor.
"""

import copy
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator, ScalarFormatter
from mmengine.config import Config
from rich.table import Table

from mmlape.datasets.sources import iter_unwrapped
from mmlape.engine.evaluator import test
from mmlape.errors import ConfigError
from mmlape.evaluation.names import label, points, ranked, show

SIZED = ('scale', 'crop_size')  # of transforms
WINDOW = ('crop_size', 'stride')  # of test_cfg


def at_size(cfg: Config, size: int) -> Config:
    """Return a configuration that tests at another size.

    Args:
        cfg: Left as it is.
        size: The shorter side in pixels that the last resize or crop of the test pipeline leaves.

    Raises:
        ConfigError: If the test pipeline has no size.
    """
    cfg = copy.deepcopy(cfg)
    datasets = list(iter_unwrapped(cfg.test_dataloader.dataset))
    factor = size / min(_own_size(dataset.pipeline, cfg.filename) for dataset in datasets)
    for dataset in datasets:
        for step in dataset.pipeline:
            for key in SIZED:
                if key in step:
                    step[key] = _scaled(step[key], factor)
    for node, keys in (
        (cfg.model.get('test_cfg') or {}, WINDOW),
        (cfg.model.get('data_preprocessor') or cfg.get('data_preprocessor') or {}, ('size',)),
    ):
        for key in keys:
            if node.get(key) is not None:
                node[key] = _scaled(node[key], factor)
    return cfg


def _own_size(pipeline: Sequence[dict], name: str) -> int:
    """Return the shorter side that a pipeline leaves."""
    values = [step[key] for step in pipeline for key in SIZED if key in step]
    if not values:
        raise ConfigError(f'{name}: its test pipeline neither resizes nor crops, so there is no size to change')
    return values[-1] if isinstance(values[-1], int) else min(values[-1])


def _scaled(value: Any, factor: float) -> Any:
    if isinstance(value, int | float):
        return max(1, round(value * factor))
    return type(value)(_scaled(one, factor) for one in value)


def sweep(cfg: Config, checkpoint: str, sizes: Sequence[int], folder: Path) -> dict[int, dict[str, float | None]]:
    """Evaluate a checkpoint at several sizes.

    Args:
        cfg: Its configuration.
        checkpoint: Weights of the complete model.
        sizes: Shorter sides in pixels.
        folder: Receives ``size_<S>/metrics.json``; a size whose file is of this checkpoint is not evaluated again.

    Returns:
        The metrics of each size, as the metric returned them.
    """
    found = {}
    for number, size in enumerate(sizes, 1):
        file = folder / f'size_{size}' / 'metrics.json'
        stamp = file.with_name('checkpoint.json')
        state = Path(checkpoint).stat()
        wanted = json.dumps([str(Path(checkpoint).resolve()), state.st_size, state.st_mtime_ns])
        if not (file.is_file() and stamp.is_file() and stamp.read_text() == wanted):
            print(f'{folder.name}: size {size}, {number} of {len(sizes)}')
            test(at_size(cfg, size), checkpoint, file.parent)
            stamp.write_text(wanted)
        found[size] = json.loads(file.read_text())['metrics']
    return found


def sweep_table(results: dict[str, dict[int, dict]], metric: str) -> Table:
    """Build a table of a metric, in points: a row a model, a column a size."""
    sizes = sorted({size for found in results.values() for size in found})
    table = Table('model', *map(str, sizes), title=f'{label(metric)} by the shorter side of the test images')
    for name, found in results.items():
        table.add_row(name, *(show(metric, found.get(size, {}).get(metric)) for size in sizes))
    return table


def main_metric(results: dict[str, dict[int, dict]]) -> str:
    """Return the metric that a short table shows."""
    return ranked(name for found in results.values() for metrics in found.values() for name in metrics)[0]


def draw_sweep(results: dict[str, dict[int, dict]], metric: str, path: Path) -> None:
    """Draw a metric over the sizes, a line a model."""
    figure = Figure((7, 4.2), layout='constrained')
    ax = figure.subplots()
    sizes = sorted({size for found in results.values() for size in found})
    for name, found in results.items():
        known = [(size, found[size][metric]) for size in sorted(found) if found[size].get(metric) is not None]
        ax.plot([size for size, _ in known], [points(metric, value) for _, value in known], marker='o', label=name)
    ax.set_xscale('log', base=2)
    ax.xaxis.set_major_locator(FixedLocator(sizes))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(ScalarFormatter())
    ax.set(xlabel='shorter side of the test images', ylabel=label(metric))
    ax.grid(alpha=0.3)
    ax.legend(fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)

"""One trained model at several test sizes: how each kind of position encoding bears sizes that it was not trained at.

The model stays as it is, and its PE is resized inside. What changes are the sizes of the test
pipeline, and those of the sliding window, all by the same factor.
"""

import copy
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.ticker import FixedLocator, NullLocator, ScalarFormatter
from mmengine.config import Config

from mmlape.datasets.sources import iter_unwrapped
from mmlape.engine.evaluator import test
from mmlape.errors import ConfigError
from mmlape.evaluation.names import is_defined, label, points, ranked
from mmlape.figures import look, new_axes, save_figure, wrapped
from mmlape.files import file_version, parse_json
from mmlape.tables import text_table

SIZED = ('scale', 'crop_size')  # of transforms
WINDOW = ('crop_size', 'stride')  # of test_cfg


def at_size(cfg: Config, size: int) -> Config:
    """Return a configuration that tests at another size.

    The shorter side that the last resize or crop leaves.

    Raises:
        ConfigError: If the test pipeline has no size, and the task is not classification.
    """
    cfg = copy.deepcopy(cfg)
    datasets: list[Any] = list(iter_unwrapped(cfg.test_dataloader.dataset))
    if cfg.model.get('type', '').endswith('ImageClassifier'):
        for dataset in datasets:
            _add_resize(dataset.pipeline, size)
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


def _add_resize(pipeline: list[dict], size: int) -> None:
    """Resize images of a pipeline that does not, such as CIFAR's, before they are packed.

    They become squares.
    """
    if not any(key in step for step in pipeline for key in SIZED):
        packs = [
            number for number, step in enumerate(pipeline) if step['type'].endswith('PackInputs')
        ]
        pipeline.insert(
            packs[0] if packs else len(pipeline), dict(type='mmpretrain.Resize', scale=size)
        )


def _own_size(pipeline: Sequence[dict], name: str) -> int:
    """Return the shorter side that a pipeline leaves."""
    values = [step[key] for step in pipeline for key in SIZED if key in step]
    if not values:
        raise ConfigError(
            f'{name}: its test pipeline neither resizes nor crops, so there is no size to change'
        )
    return values[-1] if isinstance(values[-1], int) else min(values[-1])


def _scaled(value: Any, factor: float) -> Any:
    if isinstance(value, int | float):
        return max(1, round(value * factor))
    return type(value)(_scaled(side, factor) for side in value)


def sweep(
    cfg: Config,
    checkpoint: str,
    sizes: Sequence[int],
    folder: Path,
) -> dict[int, dict[str, float | None]]:
    """Evaluate a checkpoint at several sizes.

    Return the metrics of each, as the metric returned them. ``folder`` receives
    ``size_<S>/metrics.json``; a size whose file is of this checkpoint and config is not evaluated
    again.
    """
    metrics = {}
    for number, size in enumerate(sizes, 1):
        file = folder / f'size_{size}' / 'metrics.json'
        stamp = file.with_name('evaluated.json')
        resized = at_size(cfg, size)
        known = [str(Path(checkpoint).resolve()), *file_version(checkpoint), resized.to_dict()]
        wanted = json.dumps(known, default=str)
        if not (file.is_file() and stamp.is_file() and stamp.read_text() == wanted):
            print(f'{folder.name}: size {size}, {number} of {len(sizes)}')
            test(resized, checkpoint, file.parent, out=file)
            stamp.write_text(wanted)
        metrics[size] = parse_json(file.read_text())['metrics']
    return metrics


def collect(
    results: dict[str, dict[int, dict]], metric: str, arms: Sequence[str]
) -> dict[str, dict[int, list[float]]]:
    """Return the defined values of a metric, in points, by arm and size.

    Models of one arm are its seeds.
    """
    values: dict[str, dict[int, list[float]]] = {}
    for arm, by_size in zip(arms, results.values()):
        for size in sorted(by_size):
            value = by_size[size].get(metric)
            if is_defined(metric, value):
                values.setdefault(arm, {}).setdefault(size, []).append(points(metric, value))
    return values


def sweep_table(values: dict[str, dict[int, list[float]]]) -> pd.DataFrame:
    """Build a table of a metric: a row an arm, a column a size.

    Mean ± sample standard deviation over its models.
    """
    sizes = sorted({size for by_size in values.values() for size in by_size})
    rows = []
    for arm, by_size in values.items():
        count = max(map(len, by_size.values()))
        rows.append((arm, count, *(_mean_and_std(by_size.get(size, [])) for size in sizes)))
    return text_table(('model', 'n', *map(str, sizes)), rows)


def _mean_and_std(values: list[float]) -> str:
    if len(values) < 2:
        return f'{values[0]:.2f}' if values else '-'
    return f'{np.mean(values):.2f} ± {np.std(values, ddof=1):.2f}'


def main_metric(results: dict[str, dict[int, dict]]) -> str:
    """Return the metric that a short table shows."""
    return ranked(
        name for by_size in results.values() for metrics in by_size.values() for name in metrics
    )[0]


def draw_sweep(values: dict[str, dict[int, list[float]]], metric: str, path: Path) -> None:
    """Draw a metric over the sizes, a line an arm.

    Bars are sample standard deviations over its models.
    """
    figure, ax = new_axes((9, 4.2))
    for place, (arm, by_size) in enumerate(values.items()):
        deviations = [np.std(some, ddof=1) if len(some) > 1 else 0 for some in by_size.values()]
        means, name = list(map(np.mean, by_size.values())), wrapped(arm, 36)
        ax.errorbar(list(by_size), means, deviations, **look(place), capsize=2, label=name)
    ax.set_xscale('log', base=2)
    ax.xaxis.set_major_locator(
        FixedLocator(sorted({size for by_size in values.values() for size in by_size}))
    )
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(ScalarFormatter())
    ax.set(xlabel='shorter side of the test images', ylabel=label(metric))
    figure.legend(loc='outside right upper', fontsize=8)
    save_figure(figure, path)

"""One trained model at several test sizes: how each kind of position encoding bears sizes that it was not trained at.

The model stays as it is, and its PE is resized inside. What changes are the sizes of the test
pipeline, and those of the sliding window, all by the same factor. With scales, the scenes change,
too: more or less is in them, and objects keep their size.
"""

import copy
import functools
import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pandas as pd
import scipy.stats
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator, ScalarFormatter
from mmengine.config import Config

import mmlape
from mmlape.errors import ConfigError, DataError, MMLaPEError
from mmlape.figures import look, save_figure, tidy, wrapped
from mmlape.files import atomic_path, file_version, parse_json, write_json
from mmlape.lab.datasets.mini.make import MARKER, make_mini_data, read_options
from mmlape.lab.datasets.retarget import reroot
from mmlape.lab.datasets.sources import iter_unwrapped
from mmlape.lab.engine.evaluator import test
from mmlape.lab.evaluation.names import is_defined, label, points, ranked
from mmlape.lab.experiments.statistics import CONFIDENCE, LEAST
from mmlape.lab.runs.failure_types import failure_type_of
from mmlape.projects.size_sweep.models import Trained
from mmlape.tables import text_table
from mmlape.weights.gate import limited
from mmlape.weights.reading import read_checkpoint, state_dict_of

SIZED = ('scale', 'crop_size')  # of transforms
WINDOW = ('crop_size', 'stride')  # of test_cfg
RESAMPLES = 9999


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
    _scale(cfg, size / min(_own_size(dataset.pipeline, cfg.filename) for dataset in datasets))
    return cfg


def _scale(cfg: Config, factor: float) -> None:
    """Multiply the sizes of the test pipeline, of sliding windows and of what images are padded to, in place."""
    steps = [step for data in iter_unwrapped(cfg.test_dataloader.dataset) for step in data.pipeline]
    preprocessor = cfg.model.get('data_preprocessor') or cfg.get('data_preprocessor') or {}
    for nodes, keys in (
        (steps, SIZED),
        ([cfg.model.get('test_cfg') or {}], WINDOW),
        ([preprocessor], ('size',)),
    ):
        for node in nodes:
            for key in keys:
                if node.get(key) is not None:
                    node[key] = _scaled(node[key], factor)


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


def own_size(cfg: Config) -> int | None:
    """Return the size that a configuration tests at: the shorter side of its images.

    That of the model's own images where the pipeline leaves them as they are; None if it has none.
    """
    datasets = list(iter_unwrapped(cfg.test_dataloader.dataset))
    if any(key in step for dataset in datasets for step in dataset.pipeline for key in SIZED):
        return min(_own_size(dataset.pipeline, cfg.filename) for dataset in datasets)
    size = (cfg.model.get('backbone') or {}).get('img_size')
    return size if size is None or isinstance(size, int) else min(size)


def at_scale(cfg: Config, scale: float, folder: Path) -> Config:
    """Return a configuration that tests on a canvas so many times as large, with objects as large as before.

    The scenes of mini data are drawn again, as many of them, from the same seed; those of scale 1
    are the data itself. Images of classification, which show one object, are resized.

    Args:
        cfg: Left as it is.
        scale: Of the sides.
        folder: Receives the scenes; those that it has are not drawn again.

    Raises:
        ConfigError: A canvas is too small for its objects, or a classifier has no size of its own.
        DataError: The data is no mini data.
    """
    if cfg.model.get('type', '').endswith('ImageClassifier'):
        own = own_size(cfg)
        if own is None:
            raise ConfigError(
                f'{cfg.filename}: neither its test pipeline nor its backbone has a size that '
                '--scales could be of: give --sizes'
            )
        return at_size(cfg, max(1, round(own * scale)))
    resized = copy.deepcopy(cfg)
    _scale(resized, scale)
    if scale == 1:
        return resized
    for dataset in iter_unwrapped(resized.test_dataloader.dataset):
        old = str(dataset.get('data_root') or resized.get('data_root') or '.').rstrip('/')
        new = draw_canvas(Path(old).parent, scale, folder) / Path(old).name
        for node in (resized.test_dataloader, resized.test_evaluator):
            reroot(node, old, str(new), set())
    return resized


def draw_canvas(root: Path, scale: float, folder: Path) -> Path:
    """Draw the validation scenes of mini data on a canvas of a scale, unless it is done; return where they are."""
    options = read_options(root).on_canvas(scale)
    text = json.dumps([mmlape.__version__, type(options).__name__, asdict(options)])
    height, width = options.size
    drawn = folder / f'{height}x{width}-{zlib.crc32(text.encode()):08x}'
    if not (drawn / MARKER).is_file():
        print(f'scenes of {height} x {width} pixels, {options.val} of them, in {drawn}')
        make_mini_data(drawn, options, overwrite=True)
    return drawn


def _own_size(pipeline: Sequence[dict], name: str) -> int:
    """Return the shorter side that a pipeline leaves."""
    values = [step[key] for step in pipeline for key in SIZED if key in step]
    if not values:
        raise ConfigError(
            f'{name}: its test pipeline neither resizes nor crops, so there is no size to change; '
            'for scenes of make-mini-data give --scales'
        )
    return values[-1] if isinstance(values[-1], int) else min(values[-1])


def _scaled(value: Any, factor: float) -> Any:
    if isinstance(value, int | float):
        return max(1, round(value * factor))
    return type(value)(_scaled(side, factor) for side in value)


def sweep_models(
    models: Sequence[Trained], sizes: Sequence[float], out: str | Path, scaled: bool
) -> tuple[pd.DataFrame, str]:
    """Evaluate models at several sizes, and write metrics, averages and a figure.

    Args:
        models: The models.
        sizes: In pixels, or in the sides of the trained size.
        out: The folder that receives all files.
        scaled: Whether sizes are scales, see `at_scale`; else see `at_size`.

    Returns:
        The table and its title.
    """
    out, results, trained_at = Path(out), {}, {}
    unit = 'side of the canvas, in trained sides' if scaled else 'shorter side of the test images'
    at = functools.partial(at_scale, folder=out / 'scenes') if scaled else at_size
    for model in models:
        trained_at[model.name] = 1.0 if scaled else own_size(model.cfg)
        results[model.name] = sweep(model, sizes, at, out / model.name)
        write_json(out / 'size_sweep.json', results)
    metric = main_metric(results)
    averaged = averages(collect(models, results, metric, trained_at))
    with atomic_path(out / 'size_sweep.csv') as partial:
        averaged.to_csv(partial, index=False)
    draw_sweep(averaged, metric, unit, out / 'size_sweep.png')
    return sweep_table(averaged), f'{label(metric)} by the {unit}'


def sweep(
    model: Trained, sizes: Sequence[float], at: Callable[[Config, Any], Config], folder: Path
) -> dict[float, dict[str, float | None]]:
    """Evaluate a model at several sizes.

    Return the metrics of each, as the metric returned them. A size whose file is of this checkpoint
    and config is not evaluated again.

    Args:
        model: The model.
        sizes: Sizes or scales.
        at: Returns the configuration that tests at one of them, of that of the model.
        folder: Receives ``size_<S>/metrics.json``.

    Raises:
        MMLaPEError: A size cannot be evaluated; the line names it and the model.
    """
    metrics = {}
    for number, size in enumerate(sizes, 1):
        file = folder / f'size_{size:g}' / 'metrics.json'
        stamp = file.with_name('evaluated.json')
        with _naming(model, size):
            resized = at(model.cfg, size)
            source = Path(model.checkpoint)
            known = [str(source.resolve()), *file_version(source), resized.to_dict()]
            wanted = json.dumps(known, default=str)
            if not (file.is_file() and stamp.is_file() and stamp.read_text() == wanted):
                print(f'{model.name}: size {size:g}, {number} of {len(sizes)}')
                with _limited(model):
                    test(resized, model.checkpoint, file.parent, out=file)
                stamp.write_text(wanted)
        metrics[size] = parse_json(file.read_text())['metrics']
    return metrics


def _limited(model: Trained) -> AbstractContextManager:
    """Bound the model of a config that no user has named by the size of its file."""
    if not model.of_run:
        return nullcontext()
    content = read_checkpoint(model.checkpoint, mmap=True)
    return limited(model.checkpoint, state_dict_of(content, model.checkpoint))


@contextmanager
def _naming(model: Trained, size: float) -> Iterator[None]:
    """Name model and size in errors, that the memory is too small among them."""
    try:
        yield
    except MMLaPEError as error:
        raise type(error)(f'{model.name}, size {size:g}: {error}') from error
    except (MemoryError, RuntimeError, cv2.error) as error:
        if failure_type_of(error).name != 'out-of-memory':
            raise
        raise ConfigError(
            f'{model.name}, size {size:g}: it does not fit into the memory '
            f'({" ".join(str(error).split())[:200]}); leave it out: smaller sizes that are done are kept'
        ) from error


def collect(
    models: Sequence[Trained],
    results: Mapping[str, Mapping[float, dict]],
    metric: str,
    trained_at: Mapping[str, float | None],
) -> pd.DataFrame:
    """Return the defined values of a metric: a row a model and size, with arm, ``value`` and ``kept``.

    Values are in points; ``kept`` is the share of the model's own value at the size that it was
    trained at.

    Raises:
        DataError: There is none.
    """
    rows = []
    for model in models:
        by_size = {
            size: points(metric, metrics[metric])
            for size, metrics in results[model.name].items()
            if is_defined(metric, metrics.get(metric))
        }
        own = by_size.get(trained_at[model.name])
        for size in sorted(by_size):
            kept = by_size[size] / own if own else float('nan')
            rows.append((model.arm, model.name, size, by_size[size], kept))
    if not rows:
        raise DataError(f'{metric} is undefined for every model and size')
    return pd.DataFrame(rows, columns=['arm', 'model', 'size', 'value', 'kept'])


def averages(values: pd.DataFrame) -> pd.DataFrame:
    """Average over the models of an arm: a row an arm and size, with n, and means with their intervals."""
    rows = []
    for (arm, size), group in values.groupby(['arm', 'size'], sort=False):
        row = dict(arm=arm, size=size, n=len(group))
        for name in ('value', 'kept'):
            some = group[name].dropna().to_numpy()
            low, high = interval(some)
            row |= {name: some.mean() if len(some) else np.nan}
            row |= {f'{name} low': low, f'{name} high': high}
        rows.append(row)
    return pd.DataFrame(rows)


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % percentile interval of a mean over seeds, by a bootstrap whose strata are the arms.

    So the seeds of an arm are drawn among themselves, with replacement. NaN for fewer than three
    values.
    """
    values = np.asarray(values, dtype=float)
    if len(values) < LEAST:
        return np.nan, np.nan
    found = scipy.stats.bootstrap(
        (values,),
        np.mean,
        n_resamples=RESAMPLES,
        confidence_level=CONFIDENCE,
        method='percentile',
        rng=np.random.default_rng(0),
    )
    return tuple(map(float, found.confidence_interval))


def sweep_table(averaged: pd.DataFrame) -> pd.DataFrame:
    """Build a table: a row an arm, a column a size, with the mean, its interval, and the share that is kept."""
    sizes = sorted(averaged['size'].unique())
    rows = []
    for arm, group in averaged.groupby('arm', sort=False):
        by_size = group.set_index('size')
        cells = (_cell(by_size.loc[size]) if size in by_size.index else '-' for size in sizes)
        rows.append((arm, int(group['n'].max()), *cells))
    return text_table(('model', 'n', *(f'{size:g}' for size in sizes)), rows)


def _cell(row: pd.Series) -> str:
    text = f'{row["value"]:.2f}'
    if np.isfinite(row['value low']):
        text += f' [{row["value low"]:.2f}, {row["value high"]:.2f}]'
    return text if np.isnan(row['kept']) else f'{text} {row["kept"]:.0%}'


def main_metric(results: Mapping[str, Mapping[float, dict]]) -> str:
    """Return the metric that a short table shows."""
    return ranked(
        name for by_size in results.values() for metrics in by_size.values() for name in metrics
    )[0]


def draw_sweep(averaged: pd.DataFrame, metric: str, unit: str, path: Path) -> None:
    """Draw a metric over the sizes, and beside it the share that is kept; a line an arm.

    Bars are the intervals.
    """
    figure = Figure(figsize=(13, 4.8), layout='constrained')
    both = figure.subplots(1, 2)
    tidy(*both)
    names = (('value', label(metric)), ('kept', f'{label(metric)}, share of the trained size'))
    for axes, (name, title) in zip(both, names):
        for place, (arm, group) in enumerate(averaged.groupby('arm', sort=False)):
            bounds = group[[f'{name} low', f'{name} high']].to_numpy().T
            bars = np.nan_to_num(np.abs(bounds - group[name].to_numpy()))
            text = wrapped(arm, 36) if name == 'value' else None
            axes.errorbar(
                group['size'].to_numpy(),
                group[name].to_numpy(),
                bars,
                **look(place),
                capsize=2,
                label=text,
            )
        axes.set_xscale('log', base=2)
        axes.xaxis.set_major_locator(FixedLocator(sorted(averaged['size'].unique())))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(ScalarFormatter())
        axes.set(xlabel=unit, ylabel=title)
    figure.legend(loc='outside right upper', fontsize=8)
    save_figure(figure, path)

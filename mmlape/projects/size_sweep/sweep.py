"""One trained model at several test sizes: how each kind of position encoding bears sizes that it was not trained at.

The model stays as it is, and its PE is resized inside. What changes are the sizes of the test
pipeline, and those of the sliding window, all by the same factor. With scales, the scenes change,
too: more or less is in them, and objects keep their size.
"""

import copy
import functools
import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator, ScalarFormatter
from mmengine.config import Config

import mmlape
from mmlape.errors import ConfigError, DataError, MMLaPEError
from mmlape.figures import look, save_figure, tidy, wrapped
from mmlape.files import file_version
from mmlape.lab.datasets.formats import iter_unwrapped
from mmlape.lab.datasets.mini.make import MARKER, make_mini_data, read_options
from mmlape.lab.datasets.retarget import reroot
from mmlape.lab.engine.evaluator import test
from mmlape.lab.evaluation.names import is_defined, label, points, ranked
from mmlape.lab.experiments.averages import Average, number
from mmlape.lab.experiments.report import ArmRuns, Report, build, check_baseline, write_report
from mmlape.lab.runs.failures import failure_kind
from mmlape.page import Part
from mmlape.projects.size_sweep.models import Swept
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
    _scale(cfg, size / min(_own_size(dataset.pipeline, cfg.filename) for dataset in datasets))
    return cfg


def _scale(cfg: Config, factor: float) -> None:
    """Multiply the sizes of the test pipeline, of sliding windows and of what images are padded to, in place."""
    steps = [step for data in iter_unwrapped(cfg.test_dataloader.dataset) for step in data.pipeline]
    preprocessor = cfg.model.get('data_preprocessor') or cfg.get('data_preprocessor') or {}
    for nodes, keys in ((steps, SIZED), ([cfg.model.get('test_cfg') or {}], WINDOW), ([preprocessor], ('size',))):
        for node in nodes:
            for key in keys:
                if node.get(key) is not None:
                    node[key] = _scaled(node[key], factor)


def _add_resize(pipeline: list[dict], size: int) -> None:
    """Resize images of a pipeline that does not, such as CIFAR's, before they are packed.

    They become squares.
    """
    if not any(key in step for step in pipeline for key in SIZED):
        packs = [number for number, step in enumerate(pipeline) if step['type'].endswith('PackInputs')]
        pipeline.insert(packs[0] if packs else len(pipeline), dict(type='mmpretrain.Resize', scale=size))


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
        size = own_size(cfg)
        if size is None:
            raise ConfigError(
                f'{cfg.filename}: neither its test pipeline nor its backbone has a size that '
                '--scales could be of: give --sizes'
            )
        return at_size(cfg, max(1, round(size * scale)))
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
    models: Sequence[Swept], sizes: Sequence[float], out: str | Path, scaled: bool, baseline: str | None = None
) -> tuple[Report, list[Path]]:
    """Evaluate models at several sizes, and write the report.

    Args:
        models: The models.
        sizes: In pixels, or in the sides of the trained size.
        out: The folder that receives all files.
        scaled: Whether sizes are scales, see `at_scale`; else see `at_size`.
        baseline: The arm to compare with, as `build` of reports takes it.

    Returns:
        The report, whose first part is the table, and its files.

    Raises:
        ConfigError: No arm has the baseline's name.
    """
    out, results, trained_at = Path(out), {}, {}
    check_baseline(baseline, list(dict.fromkeys(model.arm for model in models)))
    unit = 'side of the canvas, in trained sides' if scaled else 'shorter side of the test images'
    resize = functools.partial(at_scale, folder=out / 'scenes') if scaled else at_size
    for model in models:
        trained_at[model.name] = 1.0 if scaled else own_size(model.trained.config)
        results[model.name] = sweep(model, sizes, resize, out / model.name)
    report = build_report(models, results, trained_at, unit, out, baseline)
    return report, write_report(report, out)


def sweep(
    model: Swept, sizes: Sequence[float], resize: Callable[[Config, Any], Config], folder: Path
) -> dict[float, dict[str, float | None]]:
    """Evaluate a model at several sizes.

    Return the metrics of each, as the metric returned them. A size whose file is of this checkpoint
    and config is not evaluated again.

    Args:
        model: The model.
        sizes: Sizes or scales.
        resize: Returns the configuration that tests at one of them, of that of the model.
        folder: Receives ``size_<S>/metrics.json``.

    Raises:
        MMLaPEError: A size cannot be evaluated; the line names it and the model.
    """
    metrics = {}
    for place, size in enumerate(sizes, 1):
        file = folder / f'size_{size:g}' / 'metrics.json'
        stamp = file.with_name('evaluated.json')
        with _naming(model, size):
            resized = resize(model.trained.config, size)
            source = Path(model.trained.weights())
            made_of = [str(source.resolve()), *file_version(source), resized.to_dict()]
            wanted = json.dumps(made_of, default=str)
            if not (file.is_file() and stamp.is_file() and stamp.read_text() == wanted):
                print(f'{model.name}: size {size:g}, {place} of {len(sizes)}')
                with model.trained.limited():
                    test(resized, model.trained.weights(), file.parent, out=file)
                stamp.write_text(wanted)
        metrics[size] = json.loads(file.read_text())['metrics']
    return metrics


@contextmanager
def _naming(model: Swept, size: float) -> Iterator[None]:
    """Name model and size in errors, that the memory is too small among them."""
    try:
        yield
    except MMLaPEError as error:
        raise type(error)(f'{model.name}, size {size:g}: {error}') from error
    except (MemoryError, RuntimeError, cv2.error) as error:
        if failure_kind(error) != 'out-of-memory':
            raise
        raise ConfigError(
            f'{model.name}, size {size:g}: it does not fit into the memory '
            f'({" ".join(str(error).split())[:200]}); leave it out: smaller sizes that are done are kept'
        ) from error


def build_report(
    models: Sequence[Swept],
    results: Mapping[str, Mapping[float, Mapping[str, float | None]]],
    trained_at: Mapping[str, float | None],
    unit: str,
    out: Path,
    baseline: str | None = None,
) -> Report:
    """Build the report: its arms are those of the models, its metrics those of each size.

    Args:
        models: The models.
        results: The metrics of each model by size, as `sweep` returns them.
        trained_at: The size that each model was trained at; None if it has none.
        unit: What the sizes are.
        out: Receives the figure.
        baseline: The arm to compare with.

    Raises:
        DataError: The main metric is undefined for every model and size.
    """
    metric = main_metric(results)
    sizes = sorted({size for by_size in results.values() for size in by_size})
    measured: dict[str, dict[int, dict[str, float]]] = {}
    for model in models:
        seeds = measured.setdefault(model.arm, {})
        values = values_of(results[model.name], metric, trained_at[model.name])
        seeds[_seed(model, len(seeds) + 1)] = values
    trained = set(trained_at.values())
    compared = [at(metric, size) for size in sizes]
    compared += [kept(metric, size) for size in sizes if trained != {size}]
    found = {name for seeds in measured.values() for values in seeds.values() for name in values}
    if not found & set(compared):
        raise DataError(f'{metric} is undefined for every model and size')
    arms = [
        ArmRuns(arm, metrics=[name for name in compared if name in found], measured=seeds)
        for arm, seeds in measured.items()
    ]
    title = f'{label(metric)} by the {unit}'
    notes = (
        "'kept' is the share of the metric at the trained size that a model keeps, in percent: each model its own.",
    )
    report = build(arms, title, baseline, notes=notes)
    draw_sweep(report, metric, sizes, unit, out / 'size_sweep.png')
    parts = (Part('table', sweep_table(report, metric, sizes)), Part('figure', str(out / 'size_sweep.png'), title))
    return replace(report, first=parts)


def at(metric: str, size: float) -> str:
    """Return the name of a metric at a size: 'box AP at 512'."""
    return f'{label(metric)} at {size:g}'


def kept(metric: str, size: float) -> str:
    """Return the name of the share that is kept of a metric at a size."""
    return f'{at(metric, size)}, kept'


def _seed(model: Swept, number: int) -> int:
    """Return the seed of a run, by the name of its folder; the number of another model among those of its arm."""
    match = re.search(r'/seed_(\d+)$', model.name)
    return int(match[1]) if match else number


def values_of(
    by_size: Mapping[float, Mapping[str, float | None]], metric: str, trained_at: float | None
) -> dict[str, float]:
    """Return the defined values of a model in points, and what it keeps of a metric, in percent.

    Nothing is kept by a model that has no value at the size that it was trained at, or 0.
    """
    values = {
        at(name, size): points(name, value)
        for size, metrics in by_size.items()
        for name, value in metrics.items()
        if value is not None and is_defined(name, value)
    }
    whole = None if trained_at is None else values.get(at(metric, trained_at))
    shares = {
        kept(metric, size): 100 * values[at(metric, size)] / whole
        for size in by_size
        if whole and at(metric, size) in values
    }
    return values | shares


def sweep_table(report: Report, metric: str, sizes: Sequence[float]) -> pd.DataFrame:
    """Build a table: a row an arm, a column a size, with the mean, its interval, and the share that is kept."""
    rows = []
    for result in report.results:
        found = result.summary.last.metrics
        n = max((found[name].n for name in map(functools.partial(at, metric), sizes) if name in found), default=0)
        cells = (_cell(found.get(at(metric, size)), found.get(kept(metric, size))) for size in sizes)
        rows.append((result.name, n, *cells))
    return text_table(('model', 'n', *(f'{size:g}' for size in sizes)), rows)


def _cell(value: Average | None, share: Average | None) -> str:
    if value is None or value.mean is None:
        return '-'
    text = number(value.mean)
    if value.low is not None:
        text += f' [{number(value.low)}, {number(value.high)}]'
    return text if share is None or share.mean is None else f'{text} {share.mean:.0f}%'


def main_metric(results: Mapping[str, Mapping[float, dict]]) -> str:
    """Return the metric that a short table shows."""
    return ranked(name for by_size in results.values() for metrics in by_size.values() for name in metrics)[0]


def draw_sweep(report: Report, metric: str, sizes: Sequence[float], unit: str, path: Path) -> None:
    """Draw a metric over the sizes, and beside it the share that is kept; a line an arm.

    Bars are the intervals.
    """
    figure = Figure(figsize=(13, 4.8), layout='constrained')
    both = figure.subplots(1, 2)
    tidy(*both)
    titles = ((at, label(metric)), (kept, f'{label(metric)}, percent of the trained size'))
    for axes, (named, title) in zip(both, titles):
        for place, result in enumerate(report.results):
            found = result.summary.last.metrics
            drawn = {
                size: entry for size in sizes if (entry := found.get(named(metric, size))) and entry.mean is not None
            }
            bars = [
                (0.0, 0.0) if one.low is None else (one.mean - one.low, one.high - one.mean) for one in drawn.values()
            ]
            axes.errorbar(
                list(drawn),
                [entry.mean for entry in drawn.values()],
                np.abs(np.array(bars, dtype=float).reshape(-1, 2)).T,
                **look(place),
                capsize=2,
                label=wrapped(result.name, 36) if named is at else None,
            )
        axes.set_xscale('log', base=2)
        axes.xaxis.set_major_locator(FixedLocator(list(sizes)))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(ScalarFormatter())
        axes.set(xlabel=unit, ylabel=title)
    figure.legend(loc='outside right upper', fontsize=8)
    save_figure(figure, path)

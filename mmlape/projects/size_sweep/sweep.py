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
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.ticker import FixedLocator, NullLocator, ScalarFormatter
from mmengine.config import Config
from mmpretrain.datasets import PackInputs
from mmpretrain.models import ImageClassifier

import mmlape
from mmlape.console.figures import look, new_axes, save_figure, wrapped
from mmlape.console.quiet import say
from mmlape.console.tables import markdown_table, text_table
from mmlape.errors import CheckpointError, ConfigError, DataError, MMLaPEError
from mmlape.files import file_version, write_text
from mmlape.lab.config.config_file import config_name
from mmlape.lab.config.stored_config import preprocessor_of
from mmlape.lab.datasets.formats import iter_unwrapped, resolve_class
from mmlape.lab.datasets.mini.make import MARKER, make_mini_data, read_options
from mmlape.lab.datasets.retarget import reroot
from mmlape.lab.evaluation.metric_names import is_defined, label, points, ranked
from mmlape.lab.experiments.averages import Average, number
from mmlape.lab.experiments.report import Report, average, build, write_data
from mmlape.lab.inference.evaluator import test
from mmlape.lab.inference.trained_model import Trained, open_trained
from mmlape.lab.runs.run import Run, read_arms
from mmlape.lab.studies import is_study, read_study


class Swept(NamedTuple):
    """A trained model of a sweep."""

    arm: str  # models of one arm are its seeds
    seed: int | None  # of the run; None for one without seeds, and for a checkpoint
    name: str  # of its own, and of its folder
    trained: Trained


def read_models(
    items: Sequence[str], cfg_options: Sequence[str] | None = None, patterns: Sequence[str] | None = None
) -> tuple[list[Swept], list[str]]:
    """Read the models that the arguments of ``size-sweep`` name.

    Args:
        items: Studies (``FILE.yml``, whose runs are in ``work_dirs/FILE``), work dirs with runs, and
            configs, each with a checkpoint behind it.
        cfg_options: Changes of every config.
        patterns: Of the arms of studies and work dirs, as shells write them; by default all.

    Returns:
        The models, and the runs that do not count, a line each.

    Raises:
        ConfigError: An item is none of these, or an arm is in two of them.
        CheckpointError: A checkpoint is missing.
        DataError: There are no runs, or none of an arm is finished.
    """
    pairs, models, skipped = [], [], []
    queue = iter(items)
    for item in queue:
        if (folder := _work_dir(item)) is None:
            pairs.append((item, _checkpoint(item, next(queue, None))))
            continue
        for arm, runs in read_arms(folder, patterns).items():
            if any(arm == one.arm for one in models):
                raise ConfigError(f'arm {arm} is in {folder} and in another of the arguments')
            models += _finished(arm, runs, cfg_options)
            skipped += [f'{arm}, seed {one.seed}: {one.outcome}' for one in runs if not one.counts]
    return [*models, *_of_pairs(pairs, cfg_options)], skipped


def _work_dir(item: str) -> Path | None:
    """Return the work dir that an argument names; None if it is a config."""
    if Path(item).is_dir():
        return Path(item)
    if is_study(item) and ':' not in Path(item).name:
        return Path('work_dirs', read_study(item).name)
    return None


def _checkpoint(config: str, file: str | None) -> str:
    if file is None:
        raise ConfigError(
            f'size-sweep takes pairs of CONFIG and CHECKPOINT, studies and work dirs: {config} is '
            'the last one and has no checkpoint'
        )
    if not Path(file).is_file():
        raise CheckpointError(f'checkpoint {file}: no such file')
    return file


def _finished(arm: str, runs: Sequence[Run], cfg_options: Sequence[str] | None) -> Iterator[Swept]:
    counting = [run for run in runs if run.counts]
    if not counting:
        raise DataError(
            f'no run of {arm} is finished ({runs[0].folder}: {runs[0].outcome}): train it, or leave it out with --arms'
        )
    for run in counting:
        run_name = run.folder.name  # seed_N, or that of the arm for a run without seeds
        name = arm if run_name == Path(arm).name else f'{arm}/{run_name}'
        trained = open_trained(run.folder, list(cfg_options or ()))
        say(f'{name}: {trained.chosen}')
        yield Swept(arm, run.seed if run_name == f'seed_{run.seed}' else None, name, trained)


def _of_pairs(pairs: Sequence[tuple[str, str]], cfg_options: Sequence[str] | None) -> Iterator[Swept]:
    models = [open_trained(pair, list(cfg_options or ())) for pair in pairs]
    arms = [config_name(model.config) for model in models]
    for place, (arm, model) in enumerate(zip(arms, models), 1):
        yield Swept(arm, None, f'{arm} ({place})' if arms.count(arm) > 1 else arm, model)


SIZED = ('scale', 'crop_size')  # of transforms
WINDOW = ('crop_size', 'stride')  # of test_cfg


def at_size(cfg: Config, size: int) -> Config:
    """Return a configuration that tests at another size.

    The shorter side that the last resize or crop leaves. Images of classification that are not resized, such as
    CIFAR's, are.

    Raises:
        ConfigError: If the test pipeline has no size, and the task is not classification.
    """
    cfg = copy.deepcopy(cfg)
    if _is_classifier(cfg) and _side(cfg) is None:
        for dataset in iter_unwrapped(cfg.test_dataloader.dataset):
            steps = [resolve_class(step['type'], 'mmpretrain', 'TRANSFORMS') for step in dataset['pipeline']]
            packs = (place for place, step in enumerate(steps) if step and issubclass(step, PackInputs))
            dataset['pipeline'].insert(next(packs, len(steps)), dict(type='mmpretrain.Resize', scale=size))
    if (side := _side(cfg)) is None:
        raise ConfigError(
            f'{cfg.filename}: its test pipeline neither resizes nor crops, so there is no size to change; '
            'for scenes of make-mini-data give --scales'
        )
    _scale(cfg, size / side)
    return cfg


def _is_classifier(cfg: Config) -> bool:
    model = resolve_class(cfg.model.get('type'), cfg.get('default_scope'), 'MODELS')
    return model is not None and issubclass(model, ImageClassifier)


def _side(cfg: Config) -> int | None:
    """Return the shorter side that the test pipeline leaves; None if it leaves images as they are."""
    sides = []
    for dataset in iter_unwrapped(cfg.test_dataloader.dataset):
        values = [step[key] for step in dataset['pipeline'] for key in SIZED if key in step]
        sides += [value if isinstance(value, int) else min(value) for value in values[-1:]]
    return min(sides, default=None)


def _scale(cfg: Config, factor: float) -> None:
    """Multiply the sizes of the test pipeline, of sliding windows and of what images are padded to, in place."""
    steps = [step for data in iter_unwrapped(cfg.test_dataloader.dataset) for step in data['pipeline']]
    preprocessor = preprocessor_of(cfg)
    for nodes, keys in ((steps, SIZED), ([cfg.model.get('test_cfg') or {}], WINDOW), ([preprocessor], ('size',))):
        for node in nodes:
            for key in keys:
                if node.get(key) is not None:
                    node[key] = _scaled(node[key], factor)


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
    if _is_classifier(cfg):
        size = _side(cfg) or (cfg.model.get('backbone') or {}).get('img_size')
        if size is None:
            raise ConfigError(
                f'{cfg.filename}: neither its test pipeline nor its backbone has a size that '
                '--scales could be of: give --sizes'
            )
        return at_size(cfg, max(1, round((size if isinstance(size, int) else min(size)) * scale)))
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


def _scaled(value: Any, factor: float) -> Any:
    if isinstance(value, int | float):
        return max(1, round(value * factor))
    return type(value)(_scaled(side, factor) for side in value)


def sweep_models(
    models: Sequence[Swept], sizes: Sequence[float], out: str | Path, scaled: bool
) -> tuple[Report, pd.DataFrame, list[Path]]:
    """Evaluate models at several sizes.

    Args:
        models: The models.
        sizes: In pixels, or in the sides of the trained size.
        out: The folder that receives all files.
        scaled: Whether sizes are scales, see `at_scale`; else see `at_size`.

    Returns:
        The averages, the table of the main metric, and the files: table, figure and numbers.

    Raises:
        DataError: The main metric is undefined for every model and size.
    """
    out = Path(out)
    unit = 'side of the canvas, in trained sides' if scaled else 'shorter side of the test images'
    resize = functools.partial(at_scale, folder=out / 'scenes') if scaled else at_size
    results = {model.name: sweep(model, sizes, resize, out / model.name) for model in models}
    metric = ranked(name for by_size in results.values() for metrics in by_size.values() for name in metrics)[0]
    report = build_report(models, results, metric, f'{label(metric)} by the {unit}')
    table = sweep_table(report, metric, sizes)
    draw_sweep(report, metric, sizes, unit, out / 'size_sweep.png')
    page = write_text(out / 'size_sweep.md', f'{report.title}\n\n{markdown_table(table)}\n')
    return report, table, [page, out / 'size_sweep.png', *write_data(report, out)]


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
        try:
            resized = resize(model.trained.config, size)
            source = Path(model.trained.weights())
            made_of = [str(source.resolve()), *file_version(source), resized.to_dict()]
            wanted = json.dumps(made_of, default=str)
            if not (file.is_file() and stamp.is_file() and stamp.read_text() == wanted):
                print(f'{model.name}: size {size:g}, {place} of {len(sizes)}')
                with model.trained.limited():
                    test(resized, model.trained.weights(), file.parent, out=file)
                stamp.write_text(wanted)
        except MMLaPEError as error:
            raise type(error)(f'{model.name}, size {size:g}: {error}') from error
        metrics[size] = json.loads(file.read_text())['metrics']
    return metrics


def build_report(
    models: Sequence[Swept], results: Mapping[str, Mapping[float, Mapping[str, float | None]]], metric: str, title: str
) -> Report:
    """Average the models of each arm, size by size.

    Args:
        models: The models.
        results: The metrics of each model by size, as `sweep` returns them.
        metric: The one to compare.
        title: Of the report.

    Raises:
        DataError: The metric is undefined for every model and size.
    """
    measured: dict[str, dict[int, dict[str, float]]] = {}
    for model in models:
        seeds = measured.setdefault(model.arm, {})
        seeds[len(seeds) + 1 if model.seed is None else model.seed] = {
            at(name, size): points(name, value)
            for size, metrics in results[model.name].items()
            for name, value in metrics.items()
            if value is not None and is_defined(name, value)
        }
    found = {name for seeds in measured.values() for values in seeds.values() for name in values}
    compared = [at(metric, size) for size in sorted({size for sizes in results.values() for size in sizes})]
    if not found & set(compared):
        raise DataError(f'{metric} is undefined for every model and size')
    chosen = [name for name in compared if name in found]
    return build([average(arm, metrics=chosen, measured=seeds) for arm, seeds in measured.items()], title)


def at(metric: str, size: float) -> str:
    """Return the name of a metric at a size: 'box AP at 512'."""
    return f'{label(metric)} at {size:g}'


def sweep_table(report: Report, metric: str, sizes: Sequence[float]) -> pd.DataFrame:
    """Build a table: a row an arm, a column a size, with the mean and its interval."""
    rows = []
    for result in report.results:
        entries = [result.summary.last.metrics.get(at(metric, size)) for size in sizes]
        n = max((entry.n for entry in entries if entry), default=0)
        rows.append((result.name, n, *map(_cell, entries)))
    return text_table(('model', 'n', *(f'{size:g}' for size in sizes)), rows)


def _cell(entry: Average | None) -> str:
    if entry is None or entry.mean is None:
        return '-'
    return number(entry.mean) + ('' if entry.low is None else f' [{number(entry.low)}, {number(entry.high)}]')


def draw_sweep(report: Report, metric: str, sizes: Sequence[float], unit: str, path: Path) -> None:
    """Draw a metric over the sizes, a line an arm; bars are the intervals."""
    figure, axes = new_axes((8, 4.8))
    for place, result in enumerate(report.results):
        found = result.summary.last.metrics
        drawn = {size: entry for size in sizes if (entry := found.get(at(metric, size))) and entry.mean is not None}
        bars = [(0.0, 0.0) if one.low is None else (one.mean - one.low, one.high - one.mean) for one in drawn.values()]
        axes.errorbar(
            list(drawn),
            [entry.mean for entry in drawn.values()],
            np.array(bars, dtype=float).reshape(-1, 2).T,
            **look(place),
            capsize=2,
            label=wrapped(result.name, 36),
        )
    axes.set_xscale('log', base=2)
    axes.xaxis.set_major_locator(FixedLocator(list(sizes)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.set(xlabel=unit, ylabel=label(metric))
    figure.legend(loc='outside right upper', fontsize=8)
    save_figure(figure, path)

"""Testing as a library function: what ``mmlape test`` calls."""

import copy
import os
from collections.abc import Sequence
from pathlib import Path

from mmcv.transforms import Resize
from mmengine.config import Config
from mmengine.dist import get_world_size, is_main_process
from mmengine.registry import MODELS

import mmlape
from mmlape.checkpoint.closed_world import allow_writing, open_forward
from mmlape.checkpoint.opening import open_file
from mmlape.console.log import log
from mmlape.console.quiet import say
from mmlape.console.tables import print_table, text_table
from mmlape.errors import ConfigError, TrainingError
from mmlape.files import naming, read_json, write_json
from mmlape.lab.config.config_file import name_types
from mmlape.lab.config.stored_config import tiles_of
from mmlape.lab.datasets.checks import check_data
from mmlape.lab.datasets.formats import iter_unwrapped
from mmlape.lab.datasets.retarget import reads_head
from mmlape.lab.distributed import init_processes, on_every_process, on_main_process, set_model_wrapper
from mmlape.lab.export.graphs import SUFFIX, Graph, install_graph
from mmlape.lab.inference import TASKS
from mmlape.lab.inference.trained_model import folder_of_run
from mmlape.lab.model_weights import classes_of_data, load_model
from mmlape.lab.recipe import Recipe
from mmlape.lab.registry import is_a
from mmlape.lab.runs.record import check_writable
from mmlape.lab.training import hooks
from mmlape.lab.training.compiling import KEY
from mmlape.lab.training.hooks.run import finite
from mmlape.lab.training.optim import InitialModel
from mmlape.lab.training.plan import default_work_dir, require_keys
from mmlape.lab.training.runner import Runner

TEST_KEYS = ('model', 'test_dataloader', 'test_cfg', 'test_evaluator')
RATIOS = (0.5, 0.75, 1.0, 1.25, 1.5, 1.75)
"""Of sizes of test-time augmentation, as ViT-Adapter's figures at several scales have them."""
NOT_TESTED = (
    'train_dataloader', 'train_cfg', 'optim_wrapper', 'param_scheduler', 'auto_scale_lr', 'val_dataloader', 'val_cfg',
    'val_evaluator',
)  # fmt: skip


def test(
    cfg: Config,
    checkpoint: str | os.PathLike,
    work_dir: str | Path | None = None,
    *,
    out: str | Path | None = None,
    save_pred: str | Path | bool | None = None,
    page: str | Path | bool | None = None,
    show_dir: str | Path | None = None,
    launcher: str = 'none',
    show: bool = True,
    name: str = 'metrics.json',
    tta: Sequence[float] | None = None,
    compile: str | None = None,
) -> dict:
    """Evaluate a checkpoint on the test set of a configuration, write ``metrics.json`` and print a table.

    Args:
        cfg: Left as it is.
        checkpoint: Weights of the full model, a file or one that is opened; every tensor must match. Or a graph of
            it, as `mmlape export-onnx` writes it, which runs in onnxruntime on the CPU.
        work_dir: For logs and results; by default the folder of the run that the checkpoint is in,
            or ``work_dirs/<name of the configuration>``.
        out: The file for the metrics; by default ``<work_dir>/<name>``, unless that is another
            checkpoint's.
        save_pred: A folder for the predictions; True for ``<work_dir>/predictions``.
        page: A file for the page of the test; True for ``.html`` beside the metrics.
        show_dir: A folder for the images, the ground truth at the left of the prediction.
        launcher: See :func:`mmlape.lab.training.trainer.train`.
        show: Whether to print the table.
        name: The name of the file by default.
        tta: Ratios of sizes for test-time augmentation; () for ``RATIOS``,
            None for no augmentation.
        compile: 'layers' compiles those of the backbone.

    Returns:
        The content of the file: ``config``, ``checkpoint``, ``task``, ``images``, ``metrics`` and
        ``per_class`` (``{measure: {class: value}}``). mIoU and the like are in percent, AP in [0,
        1]; None where undefined. ``tta`` has the ratios, or 'tta_pipeline' where that of the
        configuration was used; None without augmentation.

    Raises:
        ConfigError, DataError, CheckpointError, TrainingError: An input or an output path is
        unusable.
    """
    require_keys(cfg, TEST_KEYS, 'tested')
    if tiles_of(cfg) and tta is not None:
        raise ConfigError('--tta is for complete images, and test_cfg has tiles: leave it out')
    cfg = copy.deepcopy(cfg)
    name_types(cfg)
    merging = None if tta is None else augment(cfg, tta)
    init_processes(launcher, cfg)
    work_dir = default_work_dir(cfg, work_dir or folder_of_run(checkpoint))
    file = Path(out or work_dir / name).absolute()
    predictions = None
    if save_pred:
        predictions = work_dir / 'predictions' if save_pred is True else Path(save_pred).absolute()
    sheet = file.with_suffix('.html') if page is True else Path(page).absolute() if page else None
    allow_writing(work_dir, file, predictions, sheet, show_dir)
    graph = on_every_process(lambda: Graph(checkpoint)) if Path(checkpoint).suffix == SUFFIX else None
    if graph and compile:
        raise ConfigError(f'--compile: {checkpoint} is a graph, which onnxruntime runs as it is')
    weights = None if graph else on_every_process(lambda: open_file(checkpoint, mmap=True))
    initial = on_every_process(lambda: InitialModel.build(cfg, 0))
    on_main_process(lambda: _check_inputs(cfg, work_dir, file, predictions, sheet, None if out else checkpoint))
    cfg.work_dir, cfg.launcher, cfg.load_from, cfg.resume = str(work_dir), launcher, None, False
    cfg[KEY] = compile
    hooks.install(Recipe.of(cfg), 'PerClassHook', 'CompileBackboneHook')
    if predictions:
        cfg.custom_hooks.append(dict(type='mmlape.SavePredictionsHook', out_dir=str(predictions)))
    if sheet:
        about = f'{Path(checkpoint).name} of {Path(cfg.filename or work_dir).stem}'
        cfg.custom_hooks.append(dict(type='mmlape.EvaluationPageHook', out=str(sheet), title=f'Test: {about}'))
    if show_dir:
        cfg.custom_hooks.append(dict(type='mmlape.DrawingsHook', out_dir=str(Path(show_dir).absolute())))
    set_model_wrapper(cfg)
    parts = copy.deepcopy(cfg)
    for key in NOT_TESTED:
        parts[key] = None
    with naming(work_dir):
        runner = Runner.from_cfg(parts, initial)
    open_forward(runner.bare_model)
    classes = classes_of_data(runner.test_loop.dataloader.dataset)
    if graph:
        for metric in runner.test_evaluator.metrics:
            if hasattr(metric, 'attach'):
                raise ConfigError(
                    f'{checkpoint}: {type(metric).__name__} reads more of the model than it '
                    'predicts: give its checkpoint'
                )
        install_graph(runner.bare_model, graph, cfg, classes)
    else:
        classes = classes if reads_head(cfg, 'test') else None
        load_model(runner.bare_model, weights, classes=classes)
    if merging:
        runner.model = MODELS.build(dict(merging, module=runner.bare_model))
    ratios = 'tta_pipeline' if cfg.get('tta_pipeline') else list(tta or RATIOS)
    with naming(work_dir):
        metrics = runner.test()
    result = dict(_result(cfg, checkpoint, runner, metrics), tta=ratios if merging else None)
    if is_main_process():
        write_json(file, result)
    if is_main_process() and show:
        print_metrics(result)
        places = (f'metrics are in {file}', f'predictions in {predictions}', f'the page in {sheet}')
        flags = (True, predictions, sheet)
        log(', '.join(place for place, given in zip(places, flags) if given))
    return result


def _check_inputs(
    cfg: Config,
    work_dir: Path,
    out: Path,
    predictions: Path | None,
    sheet: Path | None,
    checkpoint: str | os.PathLike | None,
) -> None:
    """Check what can be checked before the model is built.

    An existing ``out`` must be of ``checkpoint``, if given.
    """
    if out.is_dir() or out.suffix == '.pkl':  # what MMSegmentation's and MMDetection's test.py take
        raise TrainingError(
            f'--out {out}: it is the JSON file for the metrics here; --save-pred DIR saves what is predicted'
        )
    replaced = f'give --out {out} to replace it'
    other = (read_json(out, fix=replaced) or {}).get('checkpoint') if checkpoint else None
    if other and Path(other).resolve() != Path(checkpoint).resolve():
        named = out.with_stem(f'{out.stem}-{Path(checkpoint).stem}')
        raise TrainingError(
            f'{out} has the metrics of {other}: give --out {named}, another --work-dir, or --out {out} to replace them'
        )
    check_data(cfg, ('test',))
    check_writable(work_dir)
    check_writable(out.parent, '--out')
    if predictions:
        check_writable(predictions, '--save-pred')
    if sheet:
        if sheet.is_dir():
            raise TrainingError(f'cannot write the page to {sheet}, which is a directory: give a file with --page')
        check_writable(sheet.parent, '--page')


def _result(cfg: Config, checkpoint: str | os.PathLike, runner: Runner, metrics: dict) -> dict:
    values = next(hook.values for hook in runner.hooks if isinstance(hook, hooks.PerClassHook))
    dataset = runner.test_loop.dataloader.dataset
    return dict(
        config=str(cfg.filename) if cfg.filename else None,
        checkpoint=os.fspath(checkpoint),
        task=TASKS.get(cfg.get('default_scope'), cfg.get('default_scope')),
        mmlape=mmlape.__version__,
        images=getattr(dataset, 'num_evaluated', len(dataset)),
        world_size=get_world_size(),
        metrics=finite(metrics),
        per_class={measure: finite(row) for measure, row in values.items()},
    )


def print_metrics(result: dict) -> None:
    """Print the overall metrics, then one row per class."""
    per_class = result['per_class']
    say(f'\n{result["checkpoint"]}: {result["task"]}, {result["images"]} images')
    rows: list[tuple[str, ...]] = [(key, _shown(value)) for key, value in result['metrics'].items()]
    print_table(text_table(('metric', 'value'), rows))
    if per_class:
        names = dict.fromkeys(name for row in per_class.values() for name in row)
        rows = [(str(name), *(_shown(row.get(name)) for row in per_class.values())) for name in names]
        print_table(text_table(('class', *per_class), rows))


def _shown(value: float | None) -> str:
    return '-' if value is None else f'{value:.4g}'


def augment(cfg: Config, ratios: Sequence[float] = ()) -> dict:
    """Have the test set give several views of each image.

    Return the config of the model that merges them. They are ``tta_pipeline`` and ``tta_model`` of
    the config, if it has them. A segmentor's are otherwise made of the test pipeline: its
    ``Resize`` at each ratio, but no smaller than the windows, and each also flipped.

    Args:
        cfg: Is changed.
        ratios: Of the sizes; ``RATIOS`` by default.

    Raises:
        ConfigError: The config has one of the two alone, no such pipeline, or is of another task.
    """
    model, pipeline = cfg.get('tta_model'), cfg.get('tta_pipeline')
    if bool(model) != bool(pipeline):
        raise ConfigError(f'{cfg.filename}: --tta needs tta_model and tta_pipeline, or neither')
    if model and ratios:
        raise ConfigError(f'{cfg.filename} has a tta_pipeline: give --tta without ratios')
    if not model and cfg.get('default_scope') != 'mmseg':
        raise ConfigError(f'{cfg.filename}: --tta needs tta_model and tta_pipeline, but for segmentors')
    for dataset in iter_unwrapped(cfg.test_dataloader.dataset):
        dataset['pipeline'] = pipeline or _views(cfg, dataset['pipeline'], ratios or RATIOS)
    return dict(model or dict(type='SegTTAModel'))


def _views(cfg: Config, pipeline: Sequence[dict], ratios: Sequence[float]) -> list[dict]:
    kept = [step.get('keep_ratio') and is_a(step, Resize, cfg.default_scope, 'TRANSFORMS') for step in pipeline]
    resizes = [number for number, is_kept in enumerate(kept) if is_kept]
    if len(resizes) != 1 or min(ratios) <= 0:
        raise ConfigError(
            f'{cfg.filename}: --tta takes positive ratios, and a test pipeline with one '
            'Resize(scale=..., keep_ratio=True); or give tta_model and tta_pipeline in the config'
        )
    (at,) = resizes
    scale, window = (pipeline[at]['scale'], min((cfg.model.get('test_cfg') or {}).get('crop_size', (0,))))
    factors = [max(ratio, window / min(scale)) for ratio in ratios]
    sizes = [dict(pipeline[at], scale=tuple(round(side * factor) for side in scale)) for factor in factors]
    flips = [dict(type='RandomFlip', prob=prob) for prob in (0.0, 1.0)]
    views = dict(type='TestTimeAug', transforms=[sizes, flips, *([step] for step in pipeline[at + 1 :])])
    return [*pipeline[:at], views]

"""Testing as a library function: what ``mmlape test`` calls."""

import copy
import math
from pathlib import Path

from mmengine.config import Config
from mmengine.dist import get_world_size, is_main_process
from mmengine.logging import print_log
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import mmlape
from mmlape.checkpoint import load_model
from mmlape.datasets.checks.quick import check_data
from mmlape.datasets.transforms import guard_loading
from mmlape.engine import hooks
from mmlape.engine.config import config_name
from mmlape.engine.distributed.processes import on_main_process
from mmlape.engine.runner import Runner
from mmlape.engine.trainer import plain_worker_errors, set_up_processes, set_wrapper
from mmlape.errors import CheckpointError, ConfigError
from mmlape.files import write_json
from mmlape.runs.record import check_writable

TASKS = {'mmdet': 'detection', 'mmseg': 'segmentation', 'mmpretrain': 'classification'}
TEST_KEYS = ('model', 'test_dataloader', 'test_cfg', 'test_evaluator')


def test(
    cfg: Config,
    checkpoint: str | Path,
    work_dir: str | Path | None = None,
    *,
    out: str | Path | None = None,
    save_pred: str | Path | bool | None = None,
    launcher: str = 'none',
) -> dict:
    """Evaluates a checkpoint on the test set of a configuration, prints a table and writes ``metrics.json``.

    Args:
        cfg: Left as it is.
        checkpoint: Weights of the whole model; every tensor must match.
        work_dir: For logs and results; by default ``work_dirs/<name of the configuration>``.
        out: The file for the metrics; by default ``<work_dir>/metrics.json``.
        save_pred: A folder for the predictions; True for ``<work_dir>/predictions``.
        launcher: As in :func:`mmlape.engine.trainer.train`.

    Returns:
        What is in the file: ``config``, ``checkpoint``, ``task``, ``images``, ``metrics`` and ``per_class``
        (``{measure: {class: value}}``). mIoU and the like are in percent, AP in [0, 1]; None where undefined.

    Raises:
        ConfigError, DataError, CheckpointError, TrainingError: If an input is bad.
    """
    missing = [key for key in TEST_KEYS if cfg.get(key) is None]
    if missing:
        raise ConfigError(f'{cfg.filename} cannot be tested: it has no {", ".join(missing)}')
    cfg = copy.deepcopy(cfg)
    set_up_processes(cfg, launcher)
    work_dir = Path(work_dir or cfg.get('work_dir') or Path('work_dirs') / config_name(cfg)).absolute()
    out = Path(out) if out else work_dir / 'metrics.json'
    on_main_process(lambda: _prepare(cfg, checkpoint, work_dir, out))
    cfg.work_dir, cfg.launcher, cfg.load_from, cfg.resume = str(work_dir), launcher, None, False
    hooks.install(cfg, 'PerClassHook')
    if save_pred:
        folder = work_dir / 'predictions' if save_pred is True else Path(save_pred)
        cfg.custom_hooks.append(dict(type='mmlape.SavePredictionsHook', out_dir=str(folder)))
    set_wrapper(cfg)
    guard_loading(cfg)
    runner = _runner(cfg)
    load_model(runner.bare_model, str(checkpoint))
    with plain_worker_errors():
        metrics = runner.test()
    result = _result(cfg, checkpoint, runner, metrics)
    if is_main_process():
        write_json(out, result)
        print_metrics(result)
        print_log(f'metrics are in {out}' + (f', predictions in {folder}' if save_pred else ''), 'current')
    return result


def _prepare(cfg: Config, checkpoint: str | Path, work_dir: Path, out: Path) -> None:
    if not Path(checkpoint).is_file():
        raise CheckpointError(f'checkpoint {checkpoint}: there is no such file')
    check_data(cfg, ('test',))
    check_writable(work_dir)
    check_writable(out.absolute().parent)


def _runner(cfg: Config) -> Runner:
    """A runner without the training and validation parts."""
    parts = copy.deepcopy(cfg)
    for key in ('train_dataloader', 'train_cfg', 'optim_wrapper', 'param_scheduler', 'auto_scale_lr'):
        parts[key] = None
    for key in ('val_dataloader', 'val_cfg', 'val_evaluator'):
        parts[key] = None
    return Runner.from_cfg(parts)


def _result(cfg: Config, checkpoint: str | Path, runner: Runner, metrics: dict) -> dict:
    values = next(hook.values for hook in runner.hooks if isinstance(hook, hooks.PerClassHook))
    return dict(
        config=str(cfg.filename) if cfg.filename else None,
        checkpoint=str(checkpoint),
        task=TASKS.get(cfg.get('default_scope'), cfg.get('default_scope')),
        mmlape=mmlape.__version__,
        images=len(runner.test_loop.dataloader.dataset),
        world_size=get_world_size(),
        metrics={key: _number(value) for key, value in metrics.items() if isinstance(value, int | float)},
        per_class={measure: {name: _number(value) for name, value in row.items()} for measure, row in values.items()},
    )


def _number(value: float) -> float | None:
    value = float(value)
    return value if math.isfinite(value) else None


def print_metrics(result: dict) -> None:
    """Prints the overall metrics, then a row a class."""
    console = Console()
    console.print(escape(f'\n{result["checkpoint"]}: {result["task"]}, {result["images"]} images'))
    overall = Table('metric', 'value')
    for key, value in result['metrics'].items():
        overall.add_row(key, _shown(value))
    console.print(overall)
    measures = list(result['per_class'])
    if not measures:
        return
    table = Table('class', *measures)
    names = dict.fromkeys(name for row in result['per_class'].values() for name in row)
    for name in names:
        table.add_row(escape(str(name)), *(_shown(result['per_class'][measure].get(name)) for measure in measures))
    console.print(table)


def _shown(value: float | None) -> str:
    return '-' if value is None else f'{value:.4g}'

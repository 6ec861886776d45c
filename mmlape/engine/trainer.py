"""Training as a library function: what ``mmlape train`` calls."""

import contextlib
import copy
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from mmengine.config import Config
from mmengine.dist import get_world_size, is_distributed, is_main_process
from mmengine.logging import print_log

import mmlape
from mmlape.datasets.checks.quick import check_data
from mmlape.datasets.transforms import guard_loading
from mmlape.engine import hooks
from mmlape.engine.batch import batch_plan, settle_batch
from mmlape.engine.config import config_name
from mmlape.engine.distributed.processes import init_processes, on_every_process, on_main_process
from mmlape.engine.distributed.sharding import distribution
from mmlape.engine.optim import check_precision, set_amp
from mmlape.engine.runner import Runner
from mmlape.engine.schedule import check_schedule
from mmlape.errors import ConfigError, MissingCheckpointError, MMLaPEError
from mmlape.files import write_json
from mmlape.runs.failures import marked
from mmlape.runs.identity import SETTINGS, collect
from mmlape.runs.machine import describe_machine
from mmlape.runs.record import RunRecord, read_record
from mmlape.runs.settings import precision, settings
from mmlape.runs.start import Start, prepare

TRAIN_KEYS = ('model', 'train_dataloader', 'train_cfg', 'optim_wrapper')
DIST_TIMEOUT = 3600
"""Seconds that a process waits for the others by default: process 0 may evaluate for long."""


def train(
    cfg: Config,
    work_dir: str | Path | None = None,
    *,
    resume: bool | str = False,
    amp: str | None = None,
    seed: int | None = None,
    deterministic: bool = False,
    launcher: str = 'none',
    batch: str | None = None,
    allow_different_software: bool = False,
) -> dict:
    """Trains the model of a configuration.

    Args:
        cfg: Left as it is.
        work_dir: Where checkpoints, logs and ``run.json`` go; by default the configuration's own ``work_dir``, else
            ``work_dirs/<name of the configuration>``.
        resume: True goes on from the newest whole checkpoint in ``work_dir``, and begins where there is none; a path
            goes on from that checkpoint. The run must be the one that was begun.
        amp: ``'bf16'`` or ``'fp16'`` for mixed precision.
        seed: Of everything random; drawn, and recorded, by default. A resumed run keeps its own.
        deterministic: Prefer deterministic kernels.
        launcher: ``'none'``, ``'pytorch'`` (torchrun) or ``'slurm'``.
        batch: What to do where the total batch is not the recipe's: ``'auto-scale-lr'``, ``'accumulate'`` or
            ``'allow-batch-mismatch'`` (see :func:`mmlape.engine.batch.settle_batch`).
        allow_different_software: Lets a run go on with other code or another stack than it was begun with.

    Returns:
        The record of the run, as in ``run.json``.

    Raises:
        ConfigError: Before anything is written, if the configuration cannot be trained so.
        TrainingError: Before anything is written, if the work dir belongs to another run.
        DataError, CheckpointError, TrainingError: Later; ``run.json`` then says what the run failed of.
    """
    missing = [key for key in TRAIN_KEYS if not cfg.get(key)]
    if missing:
        raise ConfigError(f'{cfg.filename} cannot be trained: it has no {", ".join(missing)}')
    cfg = copy.deepcopy(cfg)
    set_up_processes(cfg, launcher)
    work_dir = Path(work_dir or cfg.get('work_dir') or Path('work_dirs') / config_name(cfg)).absolute()
    on_every_process(lambda: check_precision(amp))
    policy = on_every_process(lambda: settle(cfg, get_world_size(), amp, batch))
    seed = (cfg.get('randomness') or {}).get('seed') if seed is None else seed
    start = on_main_process(lambda: _start(cfg, work_dir, seed, policy, resume, allow_different_software))
    if start.finished:
        print_log(f'{work_dir} holds a finished run: nothing to do', 'current')
        return read_record(work_dir)
    with contextlib.ExitStack() as stack:
        if is_main_process():
            stack.callback(os.close, start.lock)
        return _run(cfg, start, deterministic, launcher)


def set_up_processes(cfg: Config, launcher: str) -> None:
    """Joins the other processes, with the back end and time-out of the configuration."""
    dist_cfg = (cfg.get('env_cfg') or {}).get('dist_cfg') or {}
    init_processes(launcher, dist_cfg.get('backend', 'nccl'), dist_cfg.get('timeout', DIST_TIMEOUT))


def settle(cfg: Config, world_size: int, amp: str | None, batch: str | None) -> str:
    """Makes the configuration the one that is trained, in place; returns the batch policy."""
    check_schedule(cfg)
    if amp:
        set_amp(cfg, amp)
    distribution(cfg)
    return settle_batch(cfg, world_size, batch)


def identify(cfg: Config, seed: int | None, world_size: int, policy: str) -> dict:
    """The identity of the run that a settled configuration makes, with its ``settings``."""
    identity = collect(cfg, seed, batch_plan(cfg, world_size), precision(cfg), policy)
    return dict(identity, settings=settings(cfg))


def _start(
    cfg: Config, work_dir: Path, seed: int | None, policy: str, resume: bool | str, allow_different_software: bool
) -> Start:
    identity = identify(cfg, seed, get_world_size(), policy)
    return prepare(cfg, work_dir, identity, resume, allow_different_software)


def _check_inputs(cfg: Config, start: Start) -> None:
    """Looks at the data, and for the weights to begin with."""
    check_data(cfg, ('train', 'val'))
    weights = cfg.get('load_from')
    if weights and not start.checkpoint and '://' not in weights and not Path(weights).is_file():
        raise MissingCheckpointError(f'load_from={weights}: there is no such file')


def _complete(cfg: Config, start: Start, launcher: str) -> None:
    """Puts into the configuration what every run has."""
    guard_loading(cfg)
    cfg.work_dir, cfg.launcher = str(start.work_dir), launcher
    cfg.resume = start.checkpoint is not None
    if start.checkpoint:
        cfg.load_from = start.checkpoint
    hooks.install(cfg, *hooks.ALWAYS)
    set_wrapper(cfg)
    cfg.randomness = dict(seed=start.identity['seed'])


def set_wrapper(cfg: Config) -> None:
    """Has a distributed run wrap its model as ``distributed`` says, in a wrapper that also knows the CPU."""
    if cfg.launcher == 'none' or cfg.get('model_wrapper_cfg'):
        return
    if distribution(cfg) == 'fsdp':
        cfg.model_wrapper_cfg = dict(type='mmlape.ShardedModel')
    else:
        unused = bool(cfg.get('find_unused_parameters', False))
        cfg.model_wrapper_cfg = dict(
            type='mmlape.MMDistributedDataParallel', broadcast_buffers=False, find_unused_parameters=unused
        )


def _record(cfg: Config, start: Start) -> RunRecord:
    """The record of the run, with what an earlier part of it found out."""
    identity = {key: value for key, value in start.identity.items() if key != 'settings'}
    previous = start.previous or {}
    fields = dict(
        config=str(cfg.filename) if cfg.filename else None,
        mmlape=mmlape.__version__,
        seed=identity['seed'],
        **batch_plan(cfg, get_world_size()),
        distributed=distribution(cfg) if is_distributed() else None,
        identity=identity,
        software_changes=[*previous.get('software_changes', []), *start.software],
        **describe_machine(),
        started=time.strftime('%Y-%m-%dT%H:%M:%S'),
        iter=start.step,
        max_iters=cfg.train_cfg.get('max_iters'),
        last=None,
        best=None,
        cost=previous.get('cost'),
    )
    record = RunRecord(start.work_dir, fields, write=is_main_process())
    record.rewind(start.previous, start.step)
    return record


def _run(cfg: Config, start: Start, deterministic: bool, launcher: str) -> dict:
    """Builds the runner and trains; whatever ends it is in the record."""
    if deterministic:
        os.environ.setdefault('CUBLAS_WORKSPACE_CONFIG', ':4096:8')
    torch.set_flush_denormal(True)  # on the CPU, vanishing gradients otherwise cost ten times the time
    record = _record(cfg, start)
    with marked(record):
        record.begin()
        if is_main_process():
            write_json(start.work_dir / SETTINGS, start.identity['settings'])
        on_main_process(lambda: _check_inputs(cfg, start))
        _complete(cfg, start, launcher)
        runner = Runner.from_cfg(cfg)
        if deterministic:
            prefer_deterministic()
        runner.record = record
        with plain_worker_errors():
            runner.train()
    record.finish()
    if is_main_process():
        from mmlape.runs.curves_image import plot_run

        with contextlib.suppress(OSError):  # a full disk takes the picture, not the run
            plot_run(start.work_dir)
    return record.fields


@contextlib.contextmanager
def plain_worker_errors() -> Iterator[None]:
    """Takes the traceback of a data loader's worker out of the message of an error that needs none."""
    try:
        yield
    except MMLaPEError as error:
        text = re.search(rf'\n\S*\b{type(error).__name__}: (.*)', str(error), re.DOTALL)
        if text is None:
            raise
        raise type(error)(text[1].strip()) from error


def prefer_deterministic() -> None:
    """Deterministic kernels where torch has them; where it has none it says so once and goes on."""
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True
    torch.use_deterministic_algorithms(True, warn_only=True)

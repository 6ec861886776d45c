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
from mmengine.dist import get_world_size, is_main_process, sync_random_seed
from mmengine.logging import print_log

import mmlape
from mmlape.datasets.checks import check_data, guard_loading
from mmlape.engine import hooks
from mmlape.engine.config import config_name
from mmlape.engine.distributed import init_processes, on_main_process
from mmlape.engine.hooks.banner import batch_plan
from mmlape.engine.optim import set_amp
from mmlape.engine.record import RunRecord, claim, read_record
from mmlape.engine.runner import Runner, read_resumable
from mmlape.errors import CheckpointError, ConfigError, MMLaPEError, TrainingError

TRAIN_KEYS = ('model', 'train_dataloader', 'train_cfg', 'optim_wrapper')


def train(
    cfg: Config,
    work_dir: str | Path | None = None,
    *,
    resume: bool | str = False,
    amp: str | None = None,
    seed: int | None = None,
    deterministic: bool = False,
    launcher: str = 'none',
    auto_scale_lr: bool = False,
) -> dict:
    """Trains the model of a configuration.

    Args:
        cfg: Left as it is.
        work_dir: Where checkpoints, logs and ``run.json`` go; by default the configuration's own ``work_dir``, else
            ``work_dirs/<name of the configuration>``.
        resume: True goes on from the newest whole checkpoint in ``work_dir``, and begins where there is none; a path
            goes on from that checkpoint.
        amp: ``'bf16'`` or ``'fp16'`` for mixed precision.
        seed: Of everything random; drawn, and recorded, by default. A resumed run keeps its own.
        deterministic: Prefer deterministic kernels.
        launcher: ``'none'``, ``'pytorch'`` (torchrun) or ``'slurm'``.
        auto_scale_lr: Scale the learning rate to the total batch.

    Returns:
        The record of the run, as in ``run.json``.

    Raises:
        ConfigError, DataError, CheckpointError: Before anything is written, if an input is bad.
        TrainingError: If the work dir, a process or a loss is; a broken run is recorded as failed.
    """
    missing = [key for key in TRAIN_KEYS if not cfg.get(key)]
    if missing:
        raise ConfigError(f'{cfg.filename} cannot be trained: it has no {", ".join(missing)}')
    cfg = copy.deepcopy(cfg)
    set_up_processes(cfg, launcher)
    work_dir = Path(work_dir or cfg.get('work_dir') or Path('work_dirs') / config_name(cfg)).absolute()
    plan = batch_plan(cfg, get_world_size())
    if amp:
        set_amp(cfg, amp)
    start = on_main_process(lambda: _prepare(cfg, work_dir, resume, seed, plan))
    if start['finished']:
        print_log(f'{work_dir} holds a finished run: nothing to do', 'current')
        return read_record(work_dir)
    seed = start['seed'] if start['seed'] is not None else sync_random_seed()
    _complete(cfg, work_dir, start['checkpoint'], launcher, auto_scale_lr)
    cfg.randomness = dict(seed=seed)
    record = RunRecord(work_dir, _fields(cfg, seed, plan), write=is_main_process())
    record.rewind(start['previous'], start['step'])
    return _run(cfg, record, deterministic)


def set_up_processes(cfg: Config, launcher: str) -> None:
    """Joins the other processes, with the back end and time-out of the configuration."""
    dist_cfg = (cfg.get('env_cfg') or {}).get('dist_cfg') or {}
    init_processes(launcher, dist_cfg.get('backend', 'nccl'), dist_cfg.get('timeout', 3600))


def _prepare(cfg: Config, work_dir: Path, resume: bool | str, seed: int | None, plan: dict) -> dict:
    """Checks everything that can be checked before a model is built; runs on rank 0 only."""
    seed = (cfg.get('randomness') or {}).get('seed') if seed is None else seed
    previous = read_record(Path(resume).parent if isinstance(resume, str) else work_dir) if resume else None
    start = dict(seed=seed, previous=previous, checkpoint=None, step=0, finished=False)
    if resume is True and previous and _is_finished(cfg, previous):
        return dict(start, finished=True)
    check_data(cfg, ('train', 'val'))
    weights = cfg.get('load_from')
    if weights and not resume and '://' not in weights and not Path(weights).is_file():
        raise CheckpointError(f'load_from={weights}: there is no such file')
    checkpoint = claim(work_dir, resume, say=lambda text: print_log(text, 'current'))
    if checkpoint is None:
        start['seed'] = (previous or {}).get('seed') if seed is None else seed
        return start
    meta = read_resumable(checkpoint)['meta']
    _refuse_other_run(cfg, previous or {}, plan)
    stored = meta.get('seed')
    if seed is not None and stored is not None and seed != stored:
        raise TrainingError(
            f'{checkpoint} belongs to a run with seed {stored}, not {seed}: resume without --seed, '
            'or start a new run in another work dir'
        )
    return dict(start, seed=seed if stored is None else stored, checkpoint=str(checkpoint), step=int(meta['iter']))


def _is_finished(cfg: Config, previous: dict) -> bool:
    if previous.get('state') != 'finished':
        return False
    lengths = [(cfg.train_cfg.get(key), previous.get(key)) for key in ('max_iters', 'max_epochs')]
    return all(wanted is None or done is None or wanted <= done for wanted, done in lengths)


def _refuse_other_run(cfg: Config, previous: dict | None, plan: dict) -> None:
    """A resumed run must be the one that was begun: what changes its meaning is an error."""
    begun, now = previous.get('config'), cfg.filename
    if begun and now and Path(begun).name != Path(now).name:
        raise TrainingError(f'this work dir holds a run of {begun}, not of {now}: give another with --work-dir')
    batch = previous.get('total_batch')
    if batch and batch != plan['total_batch']:
        raise TrainingError(
            f'this run was begun with {batch} images a step and would go on with {plan["total_batch"]} '
            f'({plan["world_size"]} processes x {plan["images_per_process"]} x {plan["accumulation"]} accumulated): '
            'change train_dataloader.batch_size, optim_wrapper.accumulative_counts or the number of processes'
        )


def _complete(cfg: Config, work_dir: Path, checkpoint: str | None, launcher: str, auto_scale_lr: bool) -> None:
    """Puts into the configuration what every run has."""
    guard_loading(cfg)
    cfg.work_dir, cfg.launcher = str(work_dir), launcher
    if checkpoint:
        cfg.load_from, cfg.resume = checkpoint, True
    else:
        cfg.resume = False
    hooks.install(cfg, *hooks.ALWAYS)
    set_wrapper(cfg)
    if auto_scale_lr:
        if not (cfg.get('auto_scale_lr') or {}).get('base_batch_size'):
            raise ConfigError(f'--auto-scale-lr: {cfg.filename} does not say auto_scale_lr.base_batch_size')
        cfg.auto_scale_lr.enable = True


def set_wrapper(cfg: Config) -> None:
    """Has a distributed run wrap its model in the wrapper that also knows the CPU."""
    if cfg.launcher != 'none' and not cfg.get('model_wrapper_cfg'):
        unused = bool(cfg.get('find_unused_parameters', False))
        cfg.model_wrapper_cfg = dict(
            type='mmlape.MMDistributedDataParallel', broadcast_buffers=False, find_unused_parameters=unused
        )


def _fields(cfg: Config, seed: int, plan: dict) -> dict:
    return dict(
        config=str(cfg.filename) if cfg.filename else None,
        mmlape=mmlape.__version__,
        seed=seed,
        **plan,
        started=time.strftime('%Y-%m-%dT%H:%M:%S'),
        iter=0,
        max_iters=cfg.train_cfg.get('max_iters'),
        last=None,
        best=None,
    )


def _run(cfg: Config, record: RunRecord, deterministic: bool) -> dict:
    """Builds the runner and trains; whatever ends it is in the record."""
    if deterministic:
        os.environ.setdefault('CUBLAS_WORKSPACE_CONFIG', ':4096:8')
    torch.set_flush_denormal(True)  # on the CPU, vanishing gradients otherwise cost ten times the time
    try:
        record.update()
        runner = Runner.from_cfg(cfg)
        if deterministic:
            prefer_deterministic()
        runner.record = record
        with plain_worker_errors():
            runner.train()
    except BaseException as error:
        record.update(state='failed', reason=f'{type(error).__name__}: {error}')
        raise
    record.update(state='finished', finished=time.strftime('%Y-%m-%dT%H:%M:%S'))
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

"""Training as a library function: what ``mmlape train`` calls.

A run starts from the first of these that there is:

1. The checkpoint that ``resume`` names: weights, optimiser, schedule and position.
2. With ``resume=True`` the newest complete checkpoint of the work dir, likewise; a finished run is left alone.
3. The weights of the complete model that the configuration's ``load_from`` names; the optimiser is new.
4. The weights of a part that its ``init_cfg`` names.
5. The initial values of the model's layers, of the seed.

:func:`mmlape.lab.runs.resume.acquire` decides it on process 0, before anything is written, and
:meth:`mmlape.lab.training.runner.Runner.load_or_resume` loads it.
"""

import contextlib
import copy
import logging
import os
import time
from pathlib import Path

import torch
from mmengine.config import Config
from mmengine.dist import get_world_size, is_distributed, is_main_process

import mmlape
from mmlape.console.log import log
from mmlape.lab.datasets.checks import check_data
from mmlape.lab.distributed import init_processes, on_every_process, on_main_process, set_model_wrapper
from mmlape.lab.runs.curves import plot_run
from mmlape.lab.runs.failures import record_failure
from mmlape.lab.runs.record import Recorder, describe_machine, sharing
from mmlape.lab.runs.resume import RunStart, acquire, initial_seed
from mmlape.lab.runs.schema import RunRecord
from mmlape.lab.runs.signals import StopRequest
from mmlape.lab.training import hooks
from mmlape.lab.training.frozen.hook import views_of
from mmlape.lab.training.optim import InitialModel, check_precision
from mmlape.lab.training.plan import RunPlan, plan_run
from mmlape.lab.training.runner import Runner


def train(
    cfg: Config,
    work_dir: str | Path | None = None,
    *,
    resume: bool | str = False,
    amp: str | None = None,
    seed: int | None = None,
    deterministic: bool | None = None,
    launcher: str = 'none',
    batch: str | None = None,
    allow_different_software: bool = False,
    share: float = 1,
    study: str | None = None,
    arm: str | None = None,
    compile: str | None = None,
) -> RunRecord:
    """Train the model of a configuration.

    Args:
        cfg: Left as it is.
        work_dir: For checkpoints, logs and ``run.json``; by default the configuration's own
            ``work_dir``, else ``work_dirs/<name of the configuration>``.
        resume: True resumes from the newest complete checkpoint in ``work_dir``, or starts if there
            is none; a path resumes from that checkpoint. It must be a checkpoint of the same run.
        amp: 'bf16' or 'fp16' for mixed precision.
        seed: Seed of all randomness; by default random, and recorded. A resumed run keeps its own.
        deterministic: Prefer deterministic kernels; by default as the configuration's
            ``randomness`` says.
        launcher: 'none', 'pytorch' (torchrun) or 'slurm'.
        batch: What to do if the total batch is not the recipe's: 'auto-scale-lr', 'accumulate' or
            'allow-batch-mismatch' (see :func:`mmlape.lab.training.plan.apply_batch_policy`).
        allow_different_software: Resume a run even if code or stack have changed since it was
            started.
        share: Of the schedule, see :func:`mmlape.lab.config.schedule.shorten`.
        study: The arm of a study that the configuration is, ``FILE.yml:ARM``.
        arm: What the run's arm is called; by default it is its folder's name.
        compile: 'layers' compiles the backbone, see :mod:`mmlape.lab.training.compiling`.

    Returns:
        The record of the run.

    Raises:
        ConfigError: The configuration cannot be trained like this; nothing has been written.
        TrainingError: The work dir belongs to another run; nothing has been written.
        MissingCheckpointError: Weights to start from are not there; nothing has been written.
        DataError, CheckpointError, TrainingError: Later; ``run.json`` then holds the reason.
    """
    cfg = copy.deepcopy(cfg)
    init_processes(launcher, cfg)
    on_every_process(lambda: check_precision(amp))
    plan = on_every_process(lambda: plan_run(cfg, get_world_size(), work_dir, seed, amp, batch, share, compile))
    if not resume:
        on_main_process(lambda: plan.require_weights(resumed=False))
    seed = on_main_process(lambda: initial_seed(plan.work_dir, plan.seed, resume))
    initial = on_every_process(lambda: InitialModel.build(plan.cfg, seed))
    start = on_main_process(
        lambda: acquire(plan.work_dir, plan.identity, cfg.filename, resume, allow_different_software, seed)
    )
    if start.finished:
        done = start.previous or RunRecord()
        why = f' ({done.reason})' if done.reason else ''
        log(f'{plan.work_dir} holds a finished run{why}: nothing to do')
        return done
    with contextlib.ExitStack() as stack:
        if is_main_process():
            stack.callback(os.close, start.lock)
        on_main_process(lambda: plan.require_weights(resumed=start.checkpoint is not None))
        record = _record(plan, start, study, arm)
        recorder = Recorder(plan.work_dir, record, is_main_process(), start.evaluations)
        with record_failure(recorder) as stop:
            recorder.begin()
            on_main_process(lambda: check_data(plan.cfg, ('train', 'val'), plan.sources))
            # on the CPU, vanishing gradients otherwise cost ten times the time
            torch.set_flush_denormal(True)
            stack.callback(torch.set_flush_denormal, False)
            _run(plan, start, recorder, stop, initial, launcher, deterministic)
            if is_main_process():
                try:
                    plot_run(plan.work_dir)
                except Exception as error:  # a full disk, a loss of 1e308: the figure is lost, not the run
                    log(f'no curves.png ({type(error).__name__}: {error})', logging.WARNING)
        recorder.finish()
    return recorder.record


def _run(
    plan: RunPlan,
    start: RunStart,
    recorder: Recorder,
    stop: StopRequest,
    initial: InitialModel,
    launcher: str,
    deterministic: bool | None,
) -> None:
    """Build the parts of a run, and let MMEngine's loop repeat four things until the run has its length.

    data         a batch of ``train_dataloader``, whose samples are seeded by their position
                 before the step: ReseedHook, CompileBackboneHook, StopHook
    step         ``model.train_step``: losses, gradients, and every ``accumulative_counts`` iterations a step of
                 the optimiser
                 after it: NaNGuardHook, LoggerHook, ParamSchedulerHook
    checkpoint   CheckpointHook, every ``interval`` of ``default_hooks.checkpoint``
                 after it: RunRecordHook, StopHook
    evaluation   every ``train_cfg.val_interval``, ``val_evaluator`` over ``val_dataloader``
                 after it: PerClassHook, LoggerHook, CheckpointHook (the best one), RunRecordHook

    `hooks.ALWAYS` has all of ours, in their order; ``custom_hooks`` of the configuration come by their priority.
    """
    cfg = plan.cfg
    cfg.work_dir, cfg.launcher = str(plan.work_dir), launcher
    cfg.resume = start.checkpoint is not None
    if start.checkpoint:
        cfg.load_from = start.checkpoint.path
    cfg.randomness = dict(plan.recipe.randomness, seed=start.identity.seed)
    if deterministic is not None:
        cfg.randomness.deterministic = deterministic
    hooks.install(plan.recipe, *hooks.ALWAYS, *(['CachedFeaturesHook'] if views_of(cfg) else []))
    set_model_wrapper(cfg)
    runner = Runner.from_cfg(cfg, initial, plan=plan, recorder=recorder, stop=stop, resumed=start.checkpoint)
    start.checkpoint = None  # the runner alone holds the file, until it is loaded
    recorder.record.parts.append(runner.timestamp)
    level = logging.WARNING if plan.batch_policy == 'allow-batch-mismatch' else logging.INFO
    runner.logger.log(level, f'{plan.banner()}; seed {runner.seed}; {runner.work_dir}')
    runner.train()


def _record(plan: RunPlan, start: RunStart, study: str | None, arm: str | None) -> RunRecord:
    """Return the record of the run, with what an earlier part of it has found out."""
    previous = start.previous or RunRecord()
    stopped = previous.stopped
    host, device = describe_machine()
    return RunRecord(
        config=str(plan.cfg.filename) if plan.cfg.filename else None,
        study=study,
        arm=arm,
        mmlape=mmlape.__version__,
        seed=start.identity.seed,
        world_size=plan.batch.world_size,
        images_per_process=plan.batch.images_per_process,
        accumulation=plan.batch.accumulation,
        total_batch=plan.batch.total,
        distributed='ddp' if is_distributed() else None,
        identity=start.identity,
        software_changes=[*previous.software_changes, *start.software_changes],
        host=host,
        device=device,
        sharing=sharing(),
        started=time.strftime('%Y-%m-%dT%H:%M:%S'),
        iter=start.iteration,
        max_iters=plan.cfg.train_cfg.get('max_iters'),
        last=previous.last,
        best=previous.best,
        stopped=stopped if stopped and stopped.iter <= start.iteration else None,
        cost=previous.cost,
        parts=[*previous.parts],
    )

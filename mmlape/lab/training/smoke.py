"""A trial of a run before it is started.

Two steps, a checkpoint, a resume and a validation, and what all will cost. Model, data, batch,
workers and precision are the run's own. The trial happens in a folder on the disk of the work dir,
which is removed again. Features of a frozen ViT that it stores stay, for the run.
"""

import copy
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from mmengine.config import Config
from mmengine.hooks import Hook
from mmengine.runner import IterBasedTrainLoop

from mmlape.console.terminal import clock, file_size
from mmlape.errors import ConfigError, TrainingError
from mmlape.lab.registry import HOOKS
from mmlape.lab.runs.record import Recorder, checkpoints, cost
from mmlape.lab.runs.schema import Cost
from mmlape.lab.training.hooks import CheckpointHook
from mmlape.lab.training.plan import default_work_dir
from mmlape.lab.training.trainer import train

STEPS = 2
MIB = 2**20


class TrialEnd(TrainingError):
    """A part of the trial is done; ``facts`` are what was measured."""

    def __init__(self, facts: dict) -> None:
        super().__init__('the trial ends here')
        self.facts = facts


@HOOKS.register_module()
class TrialHook(Hook):
    """End a new run after two steps with a checkpoint, and a resumed one after an iteration and a validation."""

    changes_results = False
    priority = 'LOWEST'

    def before_train(self, runner) -> None:
        """Count what the complete run will do, and start the clock."""
        self.resumed = runner.iter > 0
        self.saving = next((hook for hook in runner.hooks if isinstance(hook, CheckpointHook)), None)
        if self.saving is None:
            raise ConfigError('--smoke needs default_hooks.checkpoint of type CheckpointHook')
        self.facts: dict = dict(
            iterations=runner.max_iters,
            validations=_validations(runner) if runner.val_loop else 0,
            checkpoints=self.saving._to_come(runner),
        )
        self.ends: list[float] = []

    def after_train_iter(self, runner, batch_idx: int, data_batch=None, outputs: dict | None = None) -> None:
        """End this part of the trial if it has done its share."""
        if torch.cuda.is_available():
            torch.cuda.synchronize()  # an iteration ends with its last kernel
        self.ends.append(time.monotonic())
        accumulated = runner.plan.batch.accumulation
        if self.resumed:
            self._validate(runner)
        elif len(self.ends) < STEPS * accumulated:
            return
        else:
            seconds = self.ends[-1] - self.ends[-1 - accumulated]
            self.facts['seconds_per_iter'] = seconds / accumulated
            self.saving.save_now(runner, runner.epoch, runner.iter + 1)
        memory = cost(0.0, None, 0, Cost())
        self.facts['peak_memory_mib'] = memory.peak_memory_mib
        self.facts['memory_kind'] = memory.memory_kind
        recorder: Recorder = runner.recorder
        recorder.record.iter = runner.iter + 1
        raise TrialEnd(self.facts)

    def _validate(self, runner) -> None:
        if runner.val_loop is None:
            return
        started = time.monotonic()
        runner.val_loop.run()
        self.facts['seconds_per_validation'] = time.monotonic() - started
        self.facts['images'] = len(runner.val_dataloader.dataset)


def _validations(runner) -> int:
    """Return how many validations a run has, unless its intervals change on the way."""
    loop = runner.train_loop
    end = loop.max_iters if isinstance(loop, IterBasedTrainLoop) else loop.max_epochs
    return sum(step % loop.val_interval == 0 or step == end for step in range(loop.val_begin, end + 1))


def smoke(cfg: Config, work_dir: str | Path | None = None, **options) -> dict:
    """Try a run, and estimate what it will take.

    Args:
        cfg: Left as it is.
        work_dir: Of the run; nothing is written into it.
        **options: Of :func:`mmlape.lab.training.trainer.train`, which the run would have; without
            ``resume``.

    Returns:
        ``seconds_per_iter``, ``seconds_per_validation`` of ``images`` (without a validation
        neither), ``peak_memory_mib`` with ``memory_kind``, ``checkpoint_mib``, ``free_mib`` of the
        disk; and of the complete run ``iterations``, ``validations``, ``checkpoints`` (at a time),
        ``hours`` and ``disk_mib``.

    Raises:
        MMLaPEError: What would have ended the run.
    """
    wanted = default_work_dir(cfg, work_dir)
    place = next(path for path in (wanted, *wanted.parents) if path.is_dir())
    folder = tempfile.TemporaryDirectory(dir=place, prefix='.smoke-', ignore_cleanup_errors=True)
    with folder as scratch:
        tried = copy.deepcopy(cfg)
        tried.custom_hooks = [dict(type='mmlape.TrialHook'), *(cfg.get('custom_hooks') or [])]
        first = _part(tried, scratch, options)
        saved = checkpoints(scratch)[0].stat().st_size
        second = _part(tried, scratch, dict(options, resume=True))
        facts = {**second, **first, 'peak_memory_mib': max(part['peak_memory_mib'] for part in (first, second))}
        free = shutil.disk_usage(scratch).free
    seconds = facts['iterations'] * facts['seconds_per_iter']
    seconds += facts['validations'] * facts.get('seconds_per_validation', 0.0)
    return dict(
        facts,
        checkpoint_mib=saved / MIB,
        free_mib=free / MIB,
        hours=seconds / 3600,
        disk_mib=facts['checkpoints'] * saved / MIB,
    )


def _part(cfg: Config, scratch: str, options: dict) -> dict:
    """Train until the hook ends it; return what it has measured."""
    try:
        train(cfg, scratch, **options)
    except TrialEnd as end:
        return end.facts
    raise TrainingError(f'--smoke: the complete run has fewer than {STEPS + 1} steps, so train it')


def summary(facts: dict) -> Iterator[str]:
    """Yield the lines that describe the result of `smoke`."""
    yield f'an iteration: {facts["seconds_per_iter"]:.3g} s'
    if facts['validations'] and 'images' in facts:
        yield f'a validation: {facts["seconds_per_validation"]:.3g} s for {facts["images"]} images'
    yield f'memory: {file_size(facts["peak_memory_mib"] * MIB)} {facts["memory_kind"]}'
    yield f'a checkpoint: {file_size(facts["checkpoint_mib"] * MIB)}, which was resumed'
    yield (
        f'the complete run: {facts["iterations"]} iterations and {facts["validations"]} '
        f'validations, about {clock(facts["hours"] * 3600)} (h:mm:ss)'
    )
    yield (
        f'its disk: {facts["checkpoints"]} checkpoints at a time, {file_size(facts["disk_mib"] * MIB)} '
        f'of the {file_size(facts["free_mib"] * MIB)} that are free'
    )

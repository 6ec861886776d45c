"""Hooks that save: every checkpoint can be resumed, none is lost to the next, and a signal leaves one."""

import inspect
import os
import shutil
from pathlib import Path

from mmengine.dist import barrier, is_main_process
from mmengine.hooks import CheckpointHook as _CheckpointHook
from mmengine.hooks import EMAHook, Hook
from mmengine.runner import EpochBasedTrainLoop, Runner

from mmlape.console.terminal import file_size
from mmlape.errors import DiskSpaceError
from mmlape.lab.config.watched_metrics import require_measured
from mmlape.lab.distributed import any_process, on_main_process
from mmlape.lab.registry import HOOKS
from mmlape.lab.runs.record import Recorder


@HOOKS.register_module()
class CheckpointHook(_CheckpointHook):
    """Save, then delete the old checkpoint; refuse weights that are not finite.

    A checkpoint holds no gradients. One that is due between two accumulated iterations is saved
    after the step of the optimiser that they lead to. One whose step is validated is saved before the validation, so
    that a kill in it loses no training, and replaced by the state behind it, which ``meta.validated`` marks.
    """

    changes_results = False
    deferred = False
    held = False  # whether one that counts iterations waits for the end of its epoch
    saved = 0  # the iteration of the last checkpoint
    validates = again = False  # whether a validation runs, and its step's checkpoint is to be replaced behind it

    def __init__(self, *args, **kwargs) -> None:
        # MMEngine hands those over to the runner that it does not know, when it saves for the first time
        taken = (_CheckpointHook.__init__, Runner.save_checkpoint)
        for name in kwargs.keys() - {name for one in taken for name in inspect.signature(one).parameters}:
            raise TypeError(f"CheckpointHook got an unexpected keyword argument '{name}'")
        super().__init__(*args, **kwargs)

    def before_train(self, runner) -> None:
        """Check that there is space for the checkpoints to come; raise DiskSpaceError if not."""
        super().before_train(runner)
        path = os.path.join(self.out_dir, self.filename_tmpl.format(self._step(runner)))
        if os.path.isfile(path):
            self.saved, self.last_ckpt = runner.iter, path
        on_main_process(lambda: self._require_space(runner))

    def _require_space(self, runner) -> None:
        free, size, count = (shutil.disk_usage(self.out_dir).free, checkpoint_bytes(runner), self._to_come(runner))
        if free < size * count:
            raise DiskSpaceError(
                f'{self.out_dir} has {file_size(free)} left, but {count} checkpoints of '
                f'{file_size(size)} are to come: free some space, give another --work-dir, or keep fewer by '
                '--cfg-options default_hooks.checkpoint.max_keep_ckpts=1'
            )

    def _to_come(self, runner) -> int:
        """Return how many more checkpoints there will be at a time, one that replaces another included."""
        done, end = (runner.epoch, runner.max_epochs) if self.by_epoch else (runner.iter, runner.max_iters)
        steps = range(max(done + 1, self.save_begin), end + 1)
        due = [self.interval > 0 and (step - self.save_begin) % self.interval == 0 for step in steps]
        saved = count = sum(due) + bool(self.save_last and due and not due[-1])
        if self.max_keep_ckpts > 0:
            count = min(count, self.max_keep_ckpts - len(self.keep_ckpt_ids))
        return count + bool(saved) + (len(self.key_indicators) if self.save_best and due else 0)

    def after_train_iter(self, runner, *args, **kwargs) -> None:
        """Save if a checkpoint is due or was deferred until now."""
        super().after_train_iter(runner, *args, **kwargs)
        if self.deferred and runner.optim_wrapper.should_update():
            self._save_checkpoint(runner)

    def after_train_epoch(self, runner) -> None:
        """Save if a checkpoint is due, or one that counts iterations has waited for the end of the epoch."""
        super().after_train_epoch(runner)
        if self.held:
            self.held = False
            self._save_checkpoint_with_step(runner, runner.iter, dict(epoch=runner.epoch + 1, iter=runner.iter))

    def _save_checkpoint(self, runner) -> None:
        loop = runner.train_loop
        is_last = isinstance(loop, EpochBasedTrainLoop) and (runner.iter + 1) % len(loop.dataloader) == 0
        self.held = is_last and not self.by_epoch
        if not self.held:
            super()._save_checkpoint(runner)

    def _step(self, runner) -> int:
        return runner.epoch if self.by_epoch else runner.iter

    def before_val(self, runner) -> None:
        """Note whether the checkpoint of this step is there."""
        self.validates, self.again = True, 0 < self.saved == runner.iter

    def complete(self, runner) -> None:
        """Save the checkpoint of this step with what the validation, which has ended, has changed."""
        self.validates = False
        if self.again:
            meta = dict(epoch=runner.epoch, iter=runner.iter, validated=True)
            self._save_checkpoint_with_step(runner, self._step(runner), meta)

    def save_now(self, runner, epoch: int, done: int) -> None:
        """Save when no checkpoint is due, unless that was done.

        ``epoch`` and ``done`` iterations are complete.
        """
        if self.saved == done:
            return
        step: int | str
        if not self.by_epoch:
            step = done
        elif done % len(runner.train_dataloader):
            step = f'{epoch}_iter_{done}'
        else:
            step = epoch
        self._save_checkpoint_with_step(runner, step, dict(epoch=epoch, iter=done))

    def _save_best_checkpoint(self, runner, metrics: dict) -> None:
        for metric in self.key_indicators if self.save_best else ():
            if metric != 'auto':
                require_measured('default_hooks.checkpoint.save_best', metric, metrics)
        super()._save_best_checkpoint(runner, metrics)

    def _save_checkpoint_with_step(self, runner, step: int | str, meta: dict) -> None:
        if self.validates:  # MMEngine saves again after a new best one
            self.again = True
            return
        self.deferred = not self.by_epoch and not runner.optim_wrapper.should_update()
        if self.deferred:
            return
        runner.check_finite()
        self.saved = meta['iter']
        limit, stale = self.max_keep_ckpts, []
        if limit > 0 and (not self.keep_ckpt_ids or self.keep_ckpt_ids[-1] != step):
            kept = [*self.keep_ckpt_ids, step]
            stale, kept = kept[:-limit], kept[-limit:]
            self.keep_ckpt_ids.clear()
            self.keep_ckpt_ids.extend(kept)
            runner.message_hub.update_info('keep_ckpt_ids', kept)
        self.max_keep_ckpts = -1
        try:
            super()._save_checkpoint_with_step(runner, step, meta)
        except UnicodeEncodeError:  # it writes the path as a text, at last
            Path(runner.work_dir, 'last_checkpoint').write_bytes(os.fsencode(self.last_ckpt))
        finally:
            self.max_keep_ckpts = limit
            if os.path.isfile(os.path.join(self.out_dir, self.filename_tmpl.format(step))):
                # also if what is written behind it fails
                recorder: Recorder = runner.recorder
                recorder.record.iter = meta['iter']
        if is_main_process():
            for old in stale:
                path = os.path.join(self.out_dir, self.filename_tmpl.format(old))
                if os.path.isfile(path):
                    os.remove(path)


def checkpoint_bytes(runner) -> int:
    """Return about how large a checkpoint is: weights, their average if there is one, and the optimiser's state."""
    size = sum(value.numel() * value.element_size() for value in runner.bare_model.state_dict().values())
    size *= 1 + any(hasattr(hook, 'ema_model') for hook in runner.hooks)
    optimizer = runner.optim_wrapper.optimizer
    has_momentum = bool(optimizer.defaults.get('momentum'))
    copies = len(optimizer.defaults['betas']) if 'betas' in optimizer.defaults else has_momentum
    trained = [value for group in optimizer.param_groups for value in group['params'] if value.requires_grad]
    size += sum(copies * value.numel() * value.element_size() for value in trained)
    return size


@HOOKS.register_module()
class StopHook(Hook):
    """Save and end after the step of the optimiser in which SIGTERM or SIGINT came to any process.

    While the weights are those of a checkpoint, in an evaluation above all, the signal ends a
    process at once.
    """

    changes_results = False
    priority = 'LOWEST'

    def before_run(self, runner) -> None:
        """Find the hook that saves; a run with another one than this package's is not saved."""
        self.saving = next((hook for hook in runner.hooks if isinstance(hook, CheckpointHook)), None)

    def before_train_iter(self, runner, batch_idx: int, data_batch=None) -> None:
        """Let the signal wait for the end of the step."""
        runner.stop.waits = self.saving is not None

    def after_train_iter(self, runner, batch_idx: int, data_batch=None, outputs: dict | None = None) -> None:
        """Stop if a process was sent the signal.

        After the last iteration of an epoch, when that has ended.
        """
        by_epoch = isinstance(runner.train_loop, EpochBasedTrainLoop)
        if not (by_epoch and (runner.iter + 1) % len(runner.train_dataloader) == 0):
            self._stop(runner, runner.epoch, runner.iter + 1)

    def after_train_epoch(self, runner) -> None:
        """Stop if a process was sent the signal."""
        if isinstance(runner.train_loop, EpochBasedTrainLoop):
            self._stop(runner, runner.epoch + 1, runner.iter)

    def _stop(self, runner, epoch: int, done: int) -> None:
        if self.saving is None or not runner.optim_wrapper.should_update():
            return
        if any_process(runner.stop.received, next(runner.model.parameters()).device):
            self.saving.save_now(runner, epoch, done)
            recorder: Recorder = runner.recorder
            recorder.record.iter = done
            recorder.write()
            barrier()  # a process that is gone ends the others, which may still write
            raise runner.stop.error()
        runner.stop.waits = self.saving.saved != done

    def after_val(self, runner) -> None:
        """Complete the checkpoint when every hook has acted on the validation."""
        if self.saving is not None:
            self.saving.complete(runner)

    def after_train(self, runner) -> None:
        """Let the signal act at once again."""
        runner.stop.waits = False


@HOOKS.register_module()
class KeptEMAHook(EMAHook):
    """MMEngine's ``EMAHook`` for recipes that evaluate the plain weights, such as CeiT's.

    Checkpoints have the plain weights as the model's, and the average under ``state_dict_ema``,
    timm's name.
    """

    before_val_epoch, after_val_epoch = Hook.before_val_epoch, Hook.after_val_epoch
    before_test_epoch, after_test_epoch = Hook.before_test_epoch, Hook.after_test_epoch

    def before_save_checkpoint(self, runner, checkpoint: dict) -> None:
        """Add the average."""
        checkpoint['state_dict_ema'] = self.ema_model.state_dict()

    def after_load_checkpoint(self, runner, checkpoint: dict) -> None:
        """Resume the average; otherwise it begins as the weights that are loaded."""
        if runner._resume and 'state_dict_ema' in checkpoint:
            self.ema_model.load_state_dict(checkpoint['state_dict_ema'])
        else:
            super().after_load_checkpoint(runner, checkpoint)

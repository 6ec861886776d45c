"""Stop a run that was sent SIGTERM after its next step, on every process at once, with a checkpoint to resume from."""

from mmengine.dist import barrier
from mmengine.hooks import Hook
from mmengine.runner import EpochBasedTrainLoop

from mmlape.engine.distributed.processes import any_process
from mmlape.engine.hooks.checkpoint import CheckpointHook, at_step
from mmlape.registry import HOOKS
from mmlape.runs.failures import Interrupted


@HOOKS.register_module()
class StopHook(Hook):
    """Save and raise Interrupted after the step of the optimiser in which the signal came to any process.

    While the weights are those of a checkpoint, in an evaluation above all, the signal ends a process at once.
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
        """Stop if a process was sent the signal; after the last iteration of an epoch, when that has ended."""
        by_epoch = isinstance(runner.train_loop, EpochBasedTrainLoop)
        if not (by_epoch and (runner.iter + 1) % len(runner.train_dataloader) == 0):
            self._stop(runner, runner.epoch, runner.iter + 1)

    def after_train_epoch(self, runner) -> None:
        """Stop if a process was sent the signal."""
        if isinstance(runner.train_loop, EpochBasedTrainLoop):
            self._stop(runner, runner.epoch + 1, runner.iter)

    def _stop(self, runner, epoch: int, done: int) -> None:
        if self.saving is None or not at_step(runner.optim_wrapper):
            return
        if any_process(runner.stop.received, next(runner.model.parameters()).device):
            self.saving.save_now(runner, epoch, done)
            runner.record.update(iter=done)
            barrier()  # a process that is gone ends the others, which may still write
            raise Interrupted
        runner.stop.waits = self.saving.saved != done

    def after_train(self, runner) -> None:
        """Let the signal act at once again."""
        runner.stop.waits = False

"""Keep ``run.json`` up to date, and repeat an evaluation that a kill prevented."""

import math
import time

from mmengine.hooks import CheckpointHook, Hook
from mmengine.runner import IterBasedTrainLoop

from mmlape.engine.hooks.per_class import PerClassHook
from mmlape.registry import HOOKS
from mmlape.runs.record import cost


@HOOKS.register_module()
class RunRecordHook(Hook):
    """Write progress and metrics through ``runner.record`` (:class:`mmlape.runs.record.RunRecord`).

    Args:
        seconds: The least time between two updates of the progress.
    """

    changes_results = False
    priority = 'LOWEST'

    def __init__(self, seconds: float = 2.0) -> None:
        self.seconds = seconds
        self.updated = -math.inf
        self.earlier_seconds = 0.0  # of earlier parts of the run
        self.times = [0.0, 0]  # seconds of iterations, and how many
        self.iteration_end: float | None = None  # of the last iteration; None if something else came after it

    def before_train(self, runner) -> None:
        """Record the start, and evaluate resumed weights if the run was killed before that was done."""
        self.started, self.first = time.monotonic(), runner.iter
        runner.record.iteration = runner.iter + 1
        self.earlier_seconds = (runner.record.fields.get('cost') or {}).get('train_seconds') or 0.0
        self.parameters = sum(parameter.numel() for parameter in runner.model.parameters())
        runner.record.update(**self._progress(runner))
        if runner.iter and self._evaluation_is_due(runner) and not runner.record.has_evaluated(runner.iter):
            runner.logger.info(f'the evaluation at iteration {runner.iter} is missing: evaluating now')
            runner.val_loop.run()

    @staticmethod
    def _evaluation_is_due(runner) -> bool:
        if runner.val_loop is None:
            return False
        loop = runner.train_loop
        loop._decide_current_val_interval()
        by_iter = isinstance(loop, IterBasedTrainLoop)
        now, end = (loop.iter, loop.max_iters) if by_iter else (loop.epoch, loop.max_epochs)
        return now >= loop.val_begin and (now % loop.val_interval == 0 or now == end)

    def after_train_iter(self, runner, batch_idx: int, data_batch=None, outputs: dict | None = None) -> None:
        """Record the progress every few seconds, and at the end."""
        now, done = time.monotonic(), runner.iter + 1
        runner.record.iteration = done + 1
        if self.iteration_end is not None:
            self.times = [self.times[0] + now - self.iteration_end, self.times[1] + 1]
        self.iteration_end = now
        if now - self.updated < self.seconds and done < runner.max_iters:
            return
        self.updated = now
        pace = (now - self.started) / max(done - self.first, 1)
        eta = round(pace * (runner.max_iters - done))
        loss = float(outputs['loss'].detach()) if outputs and 'loss' in outputs else None
        runner.record.update(**self._progress(runner, done), loss=loss, eta=eta, cost=self._cost())

    def _cost(self) -> dict:
        seconds, count = self.times
        total = self.earlier_seconds + time.monotonic() - self.started
        return cost(total, seconds / count if count else None, self.parameters)

    def before_val(self, runner) -> None:
        """Leave the evaluation out of the time of an iteration."""
        self.iteration_end = None

    def after_save_checkpoint(self, runner, checkpoint: dict) -> None:
        """Leave the checkpoint out of the time of an iteration."""
        self.iteration_end = None

    def after_val_epoch(self, runner, metrics: dict | None = None) -> None:
        """Record the metrics of an evaluation during training."""
        scalars = _finite({key: value for key, value in (metrics or {}).items() if isinstance(value, int | float)})
        if not scalars:
            return
        key, greater = self._criterion(runner, scalars)
        classes = next((hook.values for hook in runner.hooks if isinstance(hook, PerClassHook)), {})
        classes = {name: _finite(row) for name, row in classes.items()}
        runner.record.add_evaluation(runner.iter, scalars, key, greater, **self._epoch(runner), per_class=classes)

    @staticmethod
    def _criterion(runner, metrics: dict) -> tuple[str, bool]:
        for hook in runner.hooks:
            if isinstance(hook, CheckpointHook) and hook.save_best:
                return hook.key_indicators[0], hook.rules[0] != 'less'
        return next(iter(metrics)), True

    @staticmethod
    def _epoch(runner) -> dict:
        if isinstance(runner.train_loop, IterBasedTrainLoop):
            return {}
        return dict(epoch=runner.epoch)

    def _progress(self, runner, done: int | None = None) -> dict:
        epoch = self._epoch(runner)
        if epoch:
            epoch['max_epochs'] = runner.max_epochs
        return dict(iter=runner.iter if done is None else done, max_iters=runner.max_iters, **epoch)

    def after_train(self, runner) -> None:
        """Record that all iterations are done."""
        runner.record.update(**self._progress(runner), eta=0, cost=self._cost())


def _finite(values: dict[str, float]) -> dict[str, float | None]:
    """Return the values as JSON can hold them: None instead of NaN."""
    return {key: float(value) if math.isfinite(value) else None for key, value in values.items()}

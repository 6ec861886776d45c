"""Hooks of every training run: seeds, steps, its log and record, and an end before a broken iteration is saved."""

import logging
import math
import time
from typing import Any

from mmengine.dist import all_gather_object
from mmengine.hooks import CheckpointHook, EarlyStoppingHook, Hook
from mmengine.runner import EpochBasedTrainLoop, IterBasedTrainLoop

from mmlape.errors import NotFiniteError
from mmlape.lab.config.watched_metrics import require_measured
from mmlape.lab.datasets.data_content import DataContent, contents_of
from mmlape.lab.decoding import encode
from mmlape.lab.distributed import any_process, on_main_process
from mmlape.lab.evaluation.metric_names import ranked
from mmlape.lab.registry import HOOKS
from mmlape.lab.runs.code import imported
from mmlape.lab.runs.record import Recorder, checkpoints, cost
from mmlape.lab.runs.resume import record_data
from mmlape.lab.runs.schema import Cost, Evaluation, RunRecord, Stop
from mmlape.lab.training.hooks.evaluation import PerClassHook
from mmlape.lab.training.optim import quiet_logger
from mmlape.lab.training.seeding import derive_seed, seed_everything

# keeps these keys apart from those of the samples, which have three parts as well
_MODEL_STREAM = 1
_STOPPING = 'early_stopping'  # a key of checkpoints


@HOOKS.register_module()
class ReseedHook(Hook):
    """Reseed every generator before each training iteration.

    Processes differ, unless the configuration has ``randomness.diff_rank_seed=False``.
    """

    changes_results = False
    priority = 'HIGHEST'

    def before_train_iter(self, runner, batch_idx: int, data_batch=None) -> None:
        """Reseed after the batch is loaded, before the forward pass."""
        rank = runner.rank if runner.diff_rank_seed else 0
        seed_everything(derive_seed(runner.seed, runner.iter, rank, _MODEL_STREAM))


@HOOKS.register_module()
class AccumulationHook(Hook):
    """Let the last step of an epoch average over the iterations that are left.

    So an epoch has the steps that larger batches would give it, and a checkpoint after it needs no
    gradients.
    """

    changes_results = False
    priority = 'HIGHEST'

    def before_run(self, runner) -> None:
        """Have the optimiser's wrapper count iterations of an epoch where MMEngine gives it those of the run."""
        loop, wrapper = runner.train_loop, runner.optim_wrapper
        if isinstance(loop, EpochBasedTrainLoop):
            length, count = len(loop.dataloader), wrapper.initialize_count_status

            def count_in_epoch(model, done: int, total: int) -> None:
                count(model, done % length, length)

            wrapper.initialize_count_status = count_in_epoch

    def before_train_epoch(self, runner) -> None:
        """Start the count; of an epoch that is resumed in its middle, there."""
        if isinstance(runner.train_loop, EpochBasedTrainLoop):
            # a warning about batch norms comes once, at the start of the run
            with quiet_logger(logging.ERROR):
                runner.optim_wrapper.initialize_count_status(runner.model, runner.iter, runner.max_iters)


@HOOKS.register_module()
class NaNGuardHook(Hook):
    """Raise NotFiniteError before anything is saved or logged from the broken iteration."""

    changes_results = False
    priority = 'HIGHEST'

    def after_train_iter(self, runner, batch_idx: int, data_batch=None, outputs: dict | None = None) -> None:
        """Check the summed loss, which is finite only if every part is."""
        loss = (outputs or {}).get('loss')
        if loss is None or not any_process(not math.isfinite(float(outputs['loss'].detach())), loss.device):
            return
        gathered = all_gather_object({key: float(value.detach()) for key, value in outputs.items() if 'loss' in key})
        bad = []
        for rank, losses in enumerate(gathered):
            where = f' (process {rank})' if len(gathered) > 1 else ''
            bad += [f'{key} = {value}{where}' for key, value in losses.items() if not math.isfinite(value)]
        kept = checkpoints(runner.work_dir)
        last = f'the last good checkpoint is {kept[0]}' if kept else 'no checkpoint had been written'
        raise NotFiniteError(
            f'the loss is not finite at iteration {runner.iter + 1}: {", ".join(bad)}; {last}. '
            'A lower learning rate or gradient clipping may help; so may --amp bf16 instead of fp16'
        )


@HOOKS.register_module()
class RunRecordHook(Hook):
    """Write metrics, and progress every few ``seconds``, through ``runner.recorder``."""

    changes_results = False
    priority = 'LOWEST'
    validated = False  # whether the checkpoint that is resumed is of behind the validation of its step

    def __init__(self, seconds: float = 2.0) -> None:
        self.seconds = seconds
        self.updated = -math.inf
        self.earlier = Cost()  # of earlier parts of the run
        self.times = [0.0, 0]  # seconds of iterations, and how many
        # of the last iteration; None if something else came after it
        self.iteration_end: float | None = None

    def before_train(self, runner) -> None:
        """Record the start, and evaluate resumed weights if the run was killed before that was done."""
        self.started, self.first = time.monotonic(), runner.iter
        recorder: Recorder = runner.recorder
        recorder.iteration = runner.iter + 1
        self.earlier = recorder.record.cost
        self.parameters = sum(parameter.numel() for parameter in runner.model.parameters())
        identity = recorder.record.identity
        identity.code.modules = imported(runner.cfg)
        on_main_process(lambda: record_data(recorder.folder, identity, self._data(runner), runner.iter))
        self._record_progress(runner, runner.iter)
        recorder.rewind(runner.iter + self.validated)
        if recorder.record.stopped:
            runner.train_loop.stop_training = True
        if runner.iter and not self.validated and self._evaluation_is_due(runner):
            runner.logger.info(
                f'the checkpoint at iteration {runner.iter} is of before its evaluation: evaluating now'
            )
            runner.val_loop.run()

    def before_save_checkpoint(self, runner, checkpoint: dict) -> None:
        """Add what the run is, and the counts of MMEngine's early stopping, which keeps them in no checkpoint."""
        identity = runner.recorder.record.identity
        checkpoint['meta']['identity'] = dict(encode(identity), settings=identity.settings)
        checkpoint[_STOPPING] = [(float(hook.best_score), hook.wait_count) for hook in _early_stopping(runner)]

    def after_load_checkpoint(self, runner, checkpoint: dict) -> None:
        """Resume these counts, and note whether the step of the checkpoint was validated before it was saved."""
        self.validated = bool(checkpoint['meta'].get('validated'))
        counts = checkpoint.get(_STOPPING)
        if counts is None and _early_stopping(runner):
            runner.logger.warning('the checkpoint is of an older version: the patience of early stopping begins anew')
        for hook, count in zip(_early_stopping(runner), counts or ()):
            hook.best_score, hook.wait_count = count

    @staticmethod
    def _data(runner) -> dict[str, list[DataContent]]:
        loops = dict(train=runner.train_loop, val=runner.val_loop)
        return {split: contents_of(loop.dataloader.dataset) for split, loop in loops.items() if loop is not None}

    def _evaluation_is_due(self, runner) -> bool:
        if runner.val_loop is None:
            return False
        loop = runner.train_loop
        loop._decide_current_val_interval()
        by_iter = isinstance(loop, IterBasedTrainLoop)
        now, end = (loop.iter, loop.max_iters) if by_iter else (loop.epoch, loop.max_epochs)
        if not by_iter and loop.iter % len(loop.dataloader):
            return False  # in the middle of an epoch
        return now >= loop.val_begin and (now % loop.val_interval == 0 or now == end)

    def after_train_iter(self, runner, batch_idx: int, data_batch=None, outputs: dict | None = None) -> None:
        """Record the progress every few seconds, and at the end."""
        now, done = time.monotonic(), runner.iter + 1
        recorder: Recorder = runner.recorder
        recorder.iteration = done + 1
        if self.iteration_end is not None:
            self.times = [self.times[0] + now - self.iteration_end, self.times[1] + 1]
        self.iteration_end = now
        if now - self.updated < self.seconds and done < runner.max_iters:
            return
        self.updated = now
        pace = (now - self.started) / max(done - self.first, 1)
        self._record_progress(runner, done)
        has_loss = outputs and 'loss' in outputs
        recorder.record.loss = float(outputs['loss'].detach()) if has_loss else None
        recorder.record.eta = round(pace * (runner.max_iters - done))
        recorder.record.cost = self._cost()
        recorder.write()

    def _cost(self) -> Cost:
        seconds, count = self.times
        elapsed = time.monotonic() - self.started
        seconds_per_iter = seconds / count if count else None
        return cost(elapsed, seconds_per_iter, self.parameters, self.earlier)

    def before_val(self, runner) -> None:
        """Leave the evaluation out of the time of an iteration."""
        self.iteration_end = None

    def after_save_checkpoint(self, runner, checkpoint: dict) -> None:
        """Leave the checkpoint out of the time of an iteration."""
        self.iteration_end = None

    def after_val_epoch(self, runner, metrics: dict | None = None) -> None:
        """Record the metrics of an evaluation during training."""
        scalars = finite(metrics or {})
        if not scalars:
            return
        for hook in _early_stopping(runner):
            require_measured(f'monitor of {type(hook).__name__}', hook.monitor, scalars)
        key, greater = self._criterion(runner, scalars)
        classes = next((hook.values for hook in runner.hooks if isinstance(hook, PerClassHook)), {})
        classes = {name: finite(row) for name, row in classes.items()}
        by_iter = isinstance(runner.train_loop, IterBasedTrainLoop)
        epoch = None if by_iter else runner.epoch
        recorder: Recorder = runner.recorder
        recorder.add_evaluation(
            Evaluation(step=runner.iter, epoch=epoch, metrics=scalars, per_class=classes), key, greater
        )

    @staticmethod
    def _criterion(runner, metrics: dict) -> tuple[str, bool]:
        """Return the metric that chooses the best checkpoint, and whether more of it is better."""
        for hook in runner.hooks:
            if isinstance(hook, CheckpointHook) and hook.save_best:
                return hook.key_indicators[0], hook.rules[0] != 'less'
        return ranked(metrics)[0], True

    @staticmethod
    def _record_progress(runner, done: int) -> None:
        record: RunRecord = runner.recorder.record
        record.iter, record.max_iters = done, runner.max_iters
        if not isinstance(runner.train_loop, IterBasedTrainLoop):
            record.epoch, record.max_epochs = runner.epoch, runner.max_epochs

    def after_train(self, runner) -> None:
        """Record that all iterations are done, or which hook has ended training before."""
        recorder: Recorder = runner.recorder
        record, stopped = recorder.record, recorder.record.stopped
        record.stopped = None
        if stopped and runner.iter < runner.max_iters:
            cause = f': {stopped.cause}' if stopped.cause else ''
            record.reason = f'stopped by {stopped.hook} at {runner.iter} of {runner.max_iters}{cause}'
            record.stopped = Stop(hook=stopped.hook, cause=stopped.cause, iter=runner.iter)
            runner.logger.info(record.reason)
        self._record_progress(runner, runner.iter)
        record.identity.code.modules = imported(runner.cfg)  # what evaluations have imported, too
        record.eta, record.cost = 0, self._cost()
        recorder.write()


def _early_stopping(runner) -> list[EarlyStoppingHook]:
    return [hook for hook in runner.hooks if isinstance(hook, EarlyStoppingHook)]


def cause_of_stop(hook: Hook) -> str:
    """Return why a hook has ended training: its ``stop_reason``, or what MMEngine's own found; '' if unknown."""
    if not isinstance(hook, EarlyStoppingHook):
        return str(getattr(hook, 'stop_reason', ''))
    if hook.wait_count >= hook.patience:
        return f'{hook.monitor} did not improve by min_delta={hook.min_delta:g} for {hook.patience} validations'
    threshold = hook.stopping_threshold
    if threshold is not None and hook.rule_map[hook.rule](hook.best_score, threshold):
        return f'{hook.monitor} reached {threshold:g}'
    return f'{hook.monitor} is not finite'


def finite(values: dict[str, Any]) -> dict[str, float | None]:
    """Return the numbers among the values, NumPy's and torch's too, as JSON can hold them.

    None instead of NaN.
    """
    plain = {
        key: value.item() if hasattr(value, 'item') and math.prod(value.shape) == 1 else value
        for key, value in values.items()
    }
    numbers = {key: value for key, value in plain.items() if isinstance(value, int | float)}
    return {key: float(value) if math.isfinite(value) else None for key, value in numbers.items()}

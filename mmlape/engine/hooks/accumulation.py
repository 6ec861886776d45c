"""Count accumulated iterations anew in every epoch, so that each epoch ends with a step of the optimiser."""

import logging

from mmengine.hooks import Hook
from mmengine.runner import EpochBasedTrainLoop

from mmlape.engine.optim import quiet_logger
from mmlape.registry import HOOKS


@HOOKS.register_module()
class AccumulationHook(Hook):
    """Let the last step of an epoch average over the iterations that are left.

    So an epoch has the steps that larger batches would give it, and a checkpoint after it needs no gradients.
    """

    changes_results = False
    priority = 'HIGHEST'

    def before_run(self, runner) -> None:
        """Have the optimiser's wrapper count iterations of an epoch where MMEngine gives it those of the run."""
        loop, wrapper = runner.train_loop, runner.optim_wrapper
        if isinstance(loop, EpochBasedTrainLoop):
            length, count = len(loop.dataloader), wrapper.initialize_count_status
            wrapper.initialize_count_status = lambda model, done, total: count(model, done % length, length)

    def before_train_epoch(self, runner) -> None:
        """Start the count; of an epoch that is resumed in its middle, there."""
        if isinstance(runner.train_loop, EpochBasedTrainLoop):
            with quiet_logger(logging.ERROR):  # a warning about batch norms comes once, at the start of the run
                runner.optim_wrapper.initialize_count_status(runner.model, runner.iter, runner.max_iters)

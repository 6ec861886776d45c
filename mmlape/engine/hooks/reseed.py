"""Make the model's randomness a function of (seed, iteration, process), which a resumed run repeats."""

from mmengine.hooks import Hook

from mmlape.engine.seeding import derive_seed, seed_everything
from mmlape.registry import HOOKS

_MODEL_STREAM = 1  # keeps these keys apart from those of the samples, which have three parts as well


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

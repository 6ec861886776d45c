"""The schedule by which the masks of attention vanish in training."""

from collections.abc import Sequence

from mmengine.hooks import Hook

from mmlape.errors import ConfigError
from mmlape.lab.registry import HOOKS
from mmlape.projects.pmt.decoder import PlainMaskDecoder


@HOOKS.register_module()
class MaskAnnealingHook(Hook):
    """Set the share of masked queries of each layer of the plain mask decoders, after each iteration.

    It is 1 until a layer's start, 0 from its end, and (1 - progress)^power between.

    Args:
        starts: Of each layer, as a share of the iterations of training.
        ends: The same.
        power: Of the fall.

    Raises:
        ConfigError: There is no such decoder, or it has another number of layers.
    """

    def __init__(self, starts: Sequence[float], ends: Sequence[float], power: float = 0.9):
        self.starts, self.ends, self.power = list(starts), list(ends), power
        if len(starts) != len(ends) or not all(0 <= a < b <= 1 for a, b in zip(starts, ends)):
            raise ConfigError(
                f'MaskAnnealingHook: starts={self.starts}, ends={self.ends}: give a start and a '
                'later end between 0 and 1 for each layer'
            )

    def before_train(self, runner) -> None:
        """Find the decoders."""
        self.decoders = [one for one in runner.model.modules() if isinstance(one, PlainMaskDecoder)]
        depths = {len(one.layers) for one in self.decoders}
        if depths != {len(self.starts)}:
            raise ConfigError(
                f'MaskAnnealingHook has shares for {len(self.starts)} layers, and the plain mask '
                f'decoders of the model have {sorted(depths) or "none"}'
            )

    def after_train_iter(self, runner, batch_idx, data_batch=None, outputs=None) -> None:
        """Set the shares of the next iteration."""
        done = (runner.iter + 1) / runner.max_iters
        left = [(end - done) / (end - start) for start, end in zip(self.starts, self.ends)]
        for decoder in self.decoders:
            decoder.set_shares([min(max(share, 0.0), 1.0) ** self.power for share in left])

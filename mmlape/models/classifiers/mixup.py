"""Mixup as big_vision has it (Steiner et al., TMLR 2022): each image is mixed with the one before it in the batch.

    x_i <- a x_i + (1 - a) x_{i - 1},  a = max(b, 1 - b),  b ~ Beta(alpha, alpha)

Needs mmpretrain; configs import it by ``custom_imports``.
"""

import numpy as np
from mmengine.registry import Registry
from mmpretrain.models.utils.batch_augments import Mixup
from mmpretrain.registry import BATCH_AUGMENTS as MMPRETRAIN_AUGMENTS
from torch import Tensor

from mmlape.registry import SCOPE

BATCH_AUGMENTS = Registry('batch augment', parent=MMPRETRAIN_AUGMENTS, scope=SCOPE)


@BATCH_AUGMENTS.register_module()
class RolledMixup(Mixup):
    """mmpretrain's ``Mixup`` with a factor of at least 1/2 and the batch rolled by one instead of shuffled.

    A factor is that of a process's batch: with several GPUs or accumulation, a step has several,
    big_vision's one.
    """

    def mix(self, batch_inputs: Tensor, batch_scores: Tensor) -> tuple[Tensor, Tensor]:
        """Mix images (B, C, H, W) and their labels (B, classes)."""
        factor = np.random.beta(self.alpha, self.alpha)
        factor = max(factor, 1 - factor)
        both = (batch_inputs, batch_scores)
        return tuple(factor * each + (1 - factor) * each.roll(1, dims=0) for each in both)

"""Stochastic depth (arXiv 1603.09382).

A branch is left out for whole images, and scaled where it stays.
"""

import torch
from torch import Tensor, nn

from mmlape.errors import ConfigError


class DropPath(nn.Module):
    """Set images of a batch to zero with a probability in training.

    The others are divided by that of staying.
    """

    def __init__(self, drop_prob: float):
        super().__init__()
        if not 0 <= drop_prob < 1:
            raise ConfigError(f'drop_path_rate: {drop_prob} is no share of at least 0 and below 1')
        self.drop_prob = drop_prob

    def forward(self, x: Tensor) -> Tensor:
        """Drop images of (B, ...)."""
        if not self.training or not self.drop_prob:
            return x
        keep = 1 - self.drop_prob
        noise = torch.rand((x.shape[0], *(1,) * (x.ndim - 1)), dtype=x.dtype, device=x.device)
        return x / keep * (keep + noise).floor()

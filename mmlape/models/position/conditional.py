"""Conditional position encoding: a depthwise convolution over the patches, between layers (CPVT, arXiv 2102.10882).

    x <- x + conv(x)        on the map of the patches, padded with zeros, from which positions are known

Prefix tokens stay as they are.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from mmlape.errors import ConfigError
from mmlape.kinds import POSITION_ENCODINGS
from mmlape.models.grid import Grid, channels_last, to_maps
from mmlape.models.position.base import LayerPosition


@POSITION_ENCODINGS.register_module('cpe')
class ConditionalPosition(LayerPosition):
    """CPVT's position encoding generator, for any size of image.

    Args:
        after: Layers that it follows, counted from 0.
        kernel_size: Side of the convolution, an odd number.

    Raises:
        ConfigError: For a side that is not odd, or no layer.
    """

    paper_name = 'CPE'

    def __init__(self, after: int | Sequence[int] = (0,), kernel_size: int = 3):
        self.after = (after,) if isinstance(after, int) else tuple(after)
        if kernel_size < 1 or kernel_size % 2 == 0:
            raise ConfigError(f'cpe: kernel_size={kernel_size} must be odd, such as 3')
        self.kernel_size = kernel_size

    def attach(self, layer: nn.Module, embed_dims: int) -> None:
        """Register the convolution ``cpe``."""
        side = self.kernel_size
        layer.cpe = nn.Conv2d(embed_dims, embed_dims, side, padding=side // 2, groups=embed_dims)

    def apply(self, layer: nn.Module, x: Tensor, grid: Grid) -> Tensor:
        """Add the convolution of the patches."""
        prefix = x.shape[1] - grid[0] * grid[1]
        patches = x[:, prefix:]
        term = layer.cpe(channels_last(to_maps(patches, grid))).flatten(2).transpose(1, 2)  # (B, N, D)
        return torch.cat((x[:, :prefix], patches + term), dim=1) if prefix else x + term

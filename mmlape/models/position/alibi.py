"""Attention with linear biases in two dimensions: logits fall with the distance of two patches (ALiBi, ICLR 2022).

logits(i, j) -= slope 2^(-8 (h + 1) / heads) |p_i - p_j|        for head h, with the Euclidean distance of the patches
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmlape.errors import ConfigError
from mmlape.models.grid import Grid
from mmlape.models.position.base import AttentionPosition
from mmlape.registry import POSITION_ENCODINGS


@POSITION_ENCODINGS.register_module('alibi2d')
class Alibi2d(AttentionPosition):
    """A fixed slope a head; prefix tokens are at no distance from anything.

    Args:
        slope: Factor of all slopes. The paper's, 1, is for 8 heads and more: those of 2 are 1/16 and 1/256.

    Raises:
        ConfigError: For a factor that is not positive.
    """

    paper_name = 'ALiBi'
    windows = True

    def __init__(self, slope: float = 1.0):
        if not slope > 0:
            raise ConfigError(f'alibi2d: slope={slope} must be positive, such as 1.0')
        self.slope = float(slope)

    def bias(self, attn: nn.Module, grid: Grid, device: torch.device | None = None) -> Tensor:
        """Return the biases of the patches of a grid, (heads, N, N)."""
        cells = torch.cartesian_prod(*(torch.arange(side, dtype=torch.float32, device=device) for side in grid))
        head = torch.arange(1, attn.num_heads + 1, dtype=torch.float32, device=device)
        slopes = self.slope * 2 ** (-8 * head / attn.num_heads)
        return -slopes[:, None, None] * (cells[:, None] - cells).norm(dim=-1)

    def logits(self, attn: nn.Module, q: Tensor, k: Tensor, grid: Grid) -> Tensor:
        """Return the biases with zeros for prefix tokens, (1, heads, P + N, P + N)."""
        prefix = self.slot.num_prefix
        return F.pad(self.bias(attn, grid, q.device), (prefix, 0, prefix, 0))[None].to(q.dtype)

    def drawn(self, attn: nn.Module, grid: Grid) -> Tensor:
        """Return the mean over heads."""
        return self.bias(attn, grid).mean(0)

"""FIRE: biases on the logits by a small network of the offset, as a share of the longest one (ICLR 2024).

In a causal sequence (arXiv 2310.04418, section 4), for query i and key j <= i,

    logits(i, j) += f(psi(i - j) / psi(max(L, i))),   psi(x) = log(c x + 1)

with f a network of one hidden layer of 32 units with ReLU and an output a head; c and L are trained. The two-sided
form in two dimensions is ours, since none is public: with y and x the rows and columns of query minus key,

    fire   logits(i, j) += f(s(y), s(x)),   s(o) = sign(o) psi(|o|) / psi(max(L_axis, side - 1))

- f takes both shares with their signs, so that it tells directions apart, as a table of offsets does.
- i is the longest offset that a causal query has. Here it is that of the axis, side - 1, the same for all patches, so
  that biases depend on offsets only and f runs once for an offset, not for a pair of patches.
- L is one number an axis, at first side - 1 of the grid that the model is made for. Grids below it have the biases
  that the same offsets have there; on larger ones, the function is stretched over the longer axis. Nothing else is
  interpolated.
"""

import math

import torch
from torch import Tensor, nn

from mmlape.kinds import POSITION_ENCODINGS
from mmlape.models.grid import Grid
from mmlape.models.position.base import AttentionSlot
from mmlape.models.position.relative_bias import OffsetBias, of_offsets

SCALE, LENGTH = 'fire_scale', 'fire_length'
HIDDEN, HIDDEN_BIAS = 'fire_hidden_weight', 'fire_hidden_bias'
OUT, OUT_BIAS = 'fire_out_weight', 'fire_out_bias'
SMALLEST_SCALE = 1e-6
"""Of the logarithm, below which it is a straight line in float32."""


@POSITION_ENCODINGS.register_module('fire')
class Fire(OffsetBias):
    """A small network of the offset's logarithm, as a share of the longest offset; prefix tokens get no bias.

    Args:
        hidden: Width of the network.
    """

    paper_name = 'FIRE'

    def __init__(self, hidden: int = 32):
        self.hidden = hidden

    def attach(self, attn: nn.Module, slot: AttentionSlot) -> None:
        """Register ``fire_scale`` (c, at first 0.1 as in the paper), ``fire_length`` (L) and the network."""
        super().attach(attn, slot)
        initial = {
            SCALE: torch.tensor([0.1]),
            LENGTH: torch.tensor([max(side - 1.0, 1.0) for side in slot.grid]),
            HIDDEN: nn.init.uniform_(torch.empty(self.hidden, 2), -(2**-0.5), 2**-0.5),
            HIDDEN_BIAS: nn.init.uniform_(torch.empty(self.hidden), -(2**-0.5), 2**-0.5),
            OUT: nn.init.uniform_(torch.empty(attn.num_heads, self.hidden), -1, 1) / math.sqrt(self.hidden),
            OUT_BIAS: torch.zeros(attn.num_heads),
        }
        for name, value in initial.items():
            attn.register_parameter(name, nn.Parameter(value))

    def bias(self, attn: nn.Module, grid: Grid, *args) -> Tensor:
        """Return the biases of the patches of a grid, (heads, N, N)."""
        rows, columns = (_shares(attn, axis, side) for axis, side in enumerate(grid))
        weight, shift = attn.fire_hidden_weight, attn.fire_hidden_bias
        hidden = rows[:, None, None] * weight[:, 0] + columns[:, None] * weight[:, 1] + shift
        hidden = hidden.relu().flatten(0, 1).to(attn.fire_out_weight.dtype)  # (offsets, hidden)
        return of_offsets(attn.fire_out_weight @ hidden.mT + attn.fire_out_bias[:, None], grid)


def _shares(attn: nn.Module, axis: int, side: int) -> Tensor:
    """Return s of the offsets of an axis, from 1 - side to side - 1, in float32 at least."""
    dtype = torch.promote_types(attn.fire_scale.dtype, torch.float32)
    scale, length = (attn.fire_scale.to(dtype).abs().clamp(min=SMALLEST_SCALE), attn.fire_length[axis].to(dtype))
    offset = torch.arange(1 - side, side, dtype=dtype, device=scale.device)
    longest = length.clamp(min=max(side - 1, 1))
    return offset.sign() * (scale * offset.abs()).log1p() / (scale * longest).log1p()

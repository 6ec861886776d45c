"""Parabolic position encoding: each query lays learned parabolas over the positions of the keys (PaPE, 2602.01418).

With p_i = W (column, row) in K dimensions a head, and tokens x,

    logits(i, j) += sum_k (-a_ik (p_ik - p_jk)^2 + b_ik (p_ik - p_jk)) / sqrt(d)
    a_i = softplus(A x_i),   b_i = B x_i

so that every query chooses how fast attention falls along K directions, and to which side it leans. Positions count
from 1, as in the public code, which puts the class token at (0, 0); ours are all prefix tokens there. Nothing is
interpolated: a larger grid has further positions.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmlape.kinds import POSITION_ENCODINGS
from mmlape.models.grid import Grid
from mmlape.models.position.base import AttentionPosition, AttentionSlot

DIRECTIONS, SHAPES = 'pape_position', 'pape_ab'


@POSITION_ENCODINGS.register_module('pape')
class ParabolicPosition(AttentionPosition):
    """Sums of parabolas whose shape each token chooses.

    Args:
        parabolas: Their number K a head.

    Raises:
        ConfigError: For a number that is not positive.
    """

    paper_name = 'PaPE'
    windows = True
    reads_tokens = True

    def __init__(self, parabolas: int = 50):
        self.parabolas = parabolas

    def attach(self, attn: nn.Module, slot: AttentionSlot) -> None:
        """Register ``pape_position`` (W) and ``pape_ab`` (A, then B), which start as torch's linear maps do."""
        super().attach(attn, slot)
        dims, rows = attn.num_heads * attn.head_dims, attn.num_heads * self.parabolas
        for name, shape in ((DIRECTIONS, (rows, 2)), (SHAPES, (2 * rows, dims))):
            bound = shape[1] ** -0.5
            value = nn.init.uniform_(torch.empty(shape), -bound, bound)
            attn.register_parameter(name, nn.Parameter(value))

    def logits(self, attn: nn.Module, q: Tensor, k: Tensor, grid: Grid, tokens: Tensor) -> Tensor:
        """Return the parabolas of all pairs, (B, heads, P + N, P + N), computed in float32 at least."""
        shapes = F.linear(tokens, attn.pape_ab.to(tokens.dtype)).unflatten(-1, (2, attn.num_heads, -1))
        wide = torch.promote_types(attn.pape_position.dtype, torch.float32)
        # (B, heads, P + N, K) each
        a, b = shapes.to(wide).permute(2, 0, 3, 1, 4)
        a = F.softplus(a)
        p = self._positions(attn, grid, wide)  # (heads, P + N, K)
        query = torch.cat((2 * a * p - b, -a), dim=-1)
        own = ((b - a * p) * p).sum(-1, keepdim=True)
        with torch.autocast(q.device.type, enabled=False):  # squares are large: no rounded product
            term = query @ torch.cat((p, p * p), dim=-1).mT + own
        return (term * attn.head_dims**-0.5).to(q.dtype)

    def _positions(self, attn: nn.Module, grid: Grid, dtype: torch.dtype) -> Tensor:
        """Return p of all tokens from the middle of the grid, where squares keep digits: (heads, P + N, K)."""
        weight = attn.pape_position.to(dtype)
        rows, columns = (torch.arange(1, side + 1, dtype=dtype, device=weight.device) for side in grid)
        # no matmul, which autocast would round
        cells = columns[:, None] * weight[:, 0] + rows[:, None, None] * weight[:, 1]
        p = F.pad(cells.flatten(0, 1), (0, 0, self.slot.num_prefix, 0))
        p = p - (columns.mean() * weight[:, 0] + rows.mean() * weight[:, 1])
        return p.unflatten(-1, (attn.num_heads, -1)).movedim(1, 0)

"""LookHere: heads that see one direction each, with linear biases in it.

lookhere   logits(i, j) -= slope s_l s_h |p_i - p_j|  if j lies in the view of head h from i      (NeurIPS 2024)
           j is left out                               otherwise

with the Euclidean distance of the patches, and a slope s_l of the layer that falls linearly over
the depth. The views are those of the public code (GreenCUBIC/lookhere), which all contain the patch
itself:

    halves      180 degrees: up, down, left, right
    corners     90 degrees: up and left, up and right, down and left, down and right
    triangles   90 degrees around up, down, left, right
    eighths     45 degrees beside an axis

Of 6, 12 and 16 heads 4, 8 and 8 have a direction, as there, and the others see everything. s_h is
1/2 for each direction's first head and halves with each further one; heads that see everything have
1/4, 1/16, 1/64 and 1/256. Where a layer has fewer directed heads than there are directions, the
next layer continues with the next direction; this, and the number of directed heads among others,
is our choice.

Nothing is trained or interpolated: a larger grid has more of the same offsets.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from mmlape.errors import ConfigError, require_choice
from mmlape.kinds import POSITION_ENCODINGS
from mmlape.models.grid import Grid, cached_tensor, ceil_div
from mmlape.models.position.base import AttentionSlot
from mmlape.models.position.relative_bias import OffsetBias, of_offsets, offsets

UP, DOWN, LEFT, RIGHT = (1, 0), (-1, 0), (0, 1), (0, -1)
UP_LEFT, UP_RIGHT, DOWN_LEFT, DOWN_RIGHT = (1, 1), (1, -1), (-1, 1), (-1, -1)
VIEWS = {
    'halves': ((UP,), (DOWN,), (LEFT,), (RIGHT,)),
    'corners': ((UP, LEFT), (UP, RIGHT), (DOWN, LEFT), (DOWN, RIGHT)),
    'triangles': (
        (UP_LEFT, UP_RIGHT), (DOWN_LEFT, DOWN_RIGHT), (UP_LEFT, DOWN_LEFT), (UP_RIGHT, DOWN_RIGHT),
    ),
    'eighths': (
        (LEFT, UP_RIGHT), (LEFT, DOWN_RIGHT), (UP, DOWN_LEFT), (UP, DOWN_RIGHT),
        (RIGHT, UP_LEFT), (RIGHT, DOWN_LEFT), (DOWN, UP_LEFT), (DOWN, UP_RIGHT),
    ),
}  # fmt: skip
"""The directions of each view: a key is seen at the offset o = query - key if o . v >= 0 for all of
their v."""
OUTSIDE = -1e4
"""What keys outside the view get, finite for queries that padding leaves no other key (DETR)."""


@cached_tensor(maxsize=64)
def _table(directions: tuple, slopes: tuple[float, ...], grid: Grid, device: torch.device | None) -> Tensor:
    """Return the biases of all offsets, (heads, (2 rows - 1) (2 columns - 1)), in float64."""
    offset = offsets(grid, device)  # (offsets, 2)
    of_heads = torch.tensor(slopes, dtype=torch.float64, device=device)
    table = -of_heads[:, None] * offset.norm(dim=-1)
    for head, direction in enumerate(directions):
        towards = torch.tensor(direction, device=device)  # (vectors, 2)
        # no matmul, which autocast would round
        seen = ((offset[:, None] * towards).sum(-1) >= 0).all(-1)
        table[head].masked_fill_(~seen, OUTSIDE)
    return table


@POSITION_ENCODINGS.register_module('lookhere')
class LookHere(OffsetBias):
    """Heads that see one direction each, with linear biases.

    Prefix tokens see, and are seen, without one.

    Args:
        view: How much a directed head sees: 'halves', 'corners', 'triangles', 'eighths', or several
            of these in turn.
        directed: Number of directed heads, the first ones; by default two thirds, in complete fours
            from 6 heads on.
        slope: Factor of all slopes, which a test at other sizes may change.
        layer_slopes: Factors of the first and the last layer.

    Raises:
        ConfigError: For unknown views, or numbers out of range.
    """

    paper_name = 'LookHere'

    def __init__(
        self,
        view: str | Sequence[str] = 'halves',
        directed: int | None = None,
        slope: float = 1.0,
        layer_slopes: tuple[float, float] = (1.5, 0.5),
    ):
        names = [view] if isinstance(view, str) else view
        for name in names:
            require_choice('view', name, VIEWS, 'lookhere: ')
        self.directions = sum((VIEWS[name] for name in names), ())
        self.directed, self.slope, self.layer_slopes = directed, float(slope), tuple(layer_slopes)

    def attach(self, attn: nn.Module, slot: AttentionSlot) -> None:
        """Choose the heads' directions and slopes; there are no parameters."""
        super().attach(attn, slot)
        count, layer, layers = attn.num_heads, slot.layer, slot.num_layers
        directed = _directed(count) if self.directed is None else self.directed
        if not 0 <= directed <= count:
            raise ConfigError(f'lookhere: directed={directed} must be between 0 and the number of heads, {count}')
        around, free = len(self.directions), count - directed
        slopes = [2.0 ** -(1 + head // around) for head in range(directed)]
        slopes += [4.0 ** -(1 + head // ceil_div(free, 4)) for head in range(free)]
        first, last = self.layer_slopes
        factor = self.slope * (first + (last - first) * layer / max(layers - 1, 1))
        self.turned = tuple(self.directions[(layer * directed + head) % around] for head in range(directed))
        self.slopes = tuple(factor * slope for slope in slopes)

    def bias(
        self, attn: nn.Module, grid: Grid, device: torch.device | None = None, dtype: torch.dtype = torch.float32
    ) -> Tensor:
        """Return the biases of the patches of a grid, (heads, N, N)."""
        return of_offsets(_table(self.turned, self.slopes, tuple(grid), device).to(dtype), grid)

    def drawn(self, attn: nn.Module, grid: Grid) -> Tensor:
        """Return what is left of a key's weight, 0 outside the view to 1, as the mean over heads."""
        return self.bias(attn, grid).exp().mean(0)


def _directed(heads: int) -> int:
    return heads * 2 // 3 // 4 * 4 if heads >= 6 else heads - heads // 3

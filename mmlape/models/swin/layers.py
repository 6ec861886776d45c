"""The layers of a Swin Transformer (ICCV 2021).

Attention in shifted windows, and the merging of patches. Every second layer shifts its windows
(section 3.2). Tokens that are neighbours only because the grid was rolled do not see each other:

    out = unroll(merge(Attention(windows(roll(x)))))

From stage to stage, four neighbouring tokens become one of twice the width. The PE of a
layer-adaptive joining goes the same way, through a norm of its own and the shared linear map:

    x' = Linear(LN(concat(x_00, x_10, x_01, x_11)))
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmlape.models.grid import Grid, assemble, cached_tensor, ceil_div, heads_together, partition
from mmlape.models.layers.attention import MultiheadAttention
from mmlape.models.layers.transformer_layer import full_precision
from mmlape.models.named_layers import build_norm
from mmlape.models.position import AttentionInput, build_pe_norm


@cached_tensor(maxsize=32)
def apart_in(grid: Grid, window: int, shift: int, device: torch.device) -> Tensor:
    """Return which tokens of a window are no neighbours before the roll, (windows, N, N) bool.

    The grid, in complete windows, was rolled by ``shift`` to the left and the top.
    """
    # whether a row, or a column, has come around the border
    rows, columns = ((torch.arange(side, device=device) >= side - shift).int() for side in grid)
    # (windows, N)
    parts = partition((2 * rows[:, None] + columns)[None, ..., None], window)[..., 0]
    return parts[:, :, None] != parts[:, None]


def _windows(x: Tensor, hw: Grid, grid: Grid, side: int, shift: int) -> Tensor:
    """Return tokens (B, H * W, D) as windows (B * windows, N, D) of the padded, rolled grid."""
    x = x.unflatten(1, hw)
    if grid != tuple(hw):
        x = F.pad(x, (0, 0, 0, grid[1] - hw[1], 0, grid[0] - hw[0]))
    return partition(x.roll((-shift, -shift), (1, 2)) if shift else x, side)


class ShiftedWindowAttention(MultiheadAttention):
    """Swin's attention, for maps of any size.

    Maps are padded to complete windows on the right and the bottom, with zeros before the qkv
    projection, and the padding is not masked.

    Args:
        *args: Of ``MultiheadAttention``, whose ``window_size`` is needed.
        shift: By how many tokens windows are shifted.
        pad_small_map: What happens to a map whose short side is at most a window. True pads and
            shifts it like any other, as mmdetection, mmsegmentation and mmpretrain's option of this
            name do. False shrinks the windows to its short side and does not shift them, as
            Microsoft's classifier does; tables of the encodings are resized where they are made for
            other windows.
        **kwargs: Of ``MultiheadAttention``.
    """

    window_size: int

    def __init__(self, *args, shift: int = 0, pad_small_map: bool = False, **kwargs):
        super().__init__(*args, **kwargs)
        self.shift, self.pad_small_map = shift, pad_small_map

    def windows_of(self, hw: Grid) -> tuple[int, int]:
        """Return the side of the windows of a map, and by how many tokens they are shifted."""
        if self.pad_small_map or min(hw) > self.window_size:
            return self.window_size, self.shift
        return min(hw), 0

    def attended_grid(self, grid: Grid) -> Grid:
        """Return the grid of a window."""
        side, _ = self.windows_of(grid)
        return side, side

    def forward(self, x: Tensor | AttentionInput, hw: Grid) -> Tensor:
        """Map tokens (B, N, D), or what q, k and v are projected from, to (B, N, D).

        ``hw`` is their grid.
        """
        (height, width), (side, shift) = hw, self.windows_of(hw)
        # padded before the projection, whose bias the padding then has as keys and values: so is
        # the public code's
        grid = (ceil_div(height, side) * side, ceil_div(width, side) * side)
        parts = [_windows(part, hw, grid, side, shift) for part in ((x,) if isinstance(x, Tensor) else x)]
        x = parts[0] if isinstance(x, Tensor) else AttentionInput(*parts)
        q, k, v = self._project(x).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        apart = apart_in(grid, side, shift, q.device) if shift else None
        out = heads_together(self._attend(q, k, v, (side, side), parts[0], apart))
        out = assemble(out, grid, side)
        out = out.roll((shift, shift), (1, 2)) if shift else out
        return self.proj_drop(self.proj(out[:, :height, :width].flatten(1, 2)))


def merged_grid(grid: Grid) -> Grid:
    """Return the grid after merging; an odd side is padded."""
    return tuple((side + 1) // 2 for side in grid)


def merge_cells(x: Tensor, grid: Grid) -> Tensor:
    """Concatenate the cells (row, column) = (0,0) (1,0) (0,1) (1,1) of tokens (B, H * W, C): (B, H/2 * W/2, 4C)."""
    (height, width) = grid
    rows, columns = merged_grid(grid)
    x = x.unflatten(1, grid)
    if (2 * rows, 2 * columns) != (height, width):
        x = F.pad(x, (0, 0, 0, 2 * columns - width, 0, 2 * rows - height))
    x = x.unflatten(2, (columns, 2)).unflatten(1, (rows, 2))  # (B, H/2, 2, W/2, 2, C)
    return x.permute(0, 1, 3, 4, 2, 5).flatten(3).flatten(1, 2)


class PatchMerging(nn.Module):
    """The step from one stage to the next, from C to 2C channels.

    With ``pe_norm``, the PE has a norm of its own.
    """

    def __init__(self, embed_dims: int, norm_cfg: dict, pe_norm: str | None = None):
        super().__init__()
        self.norm = build_norm(norm_cfg, 4 * embed_dims)
        self.pe_norm = build_pe_norm(pe_norm, 4 * embed_dims, norm_cfg) if pe_norm else None
        self.reduction = nn.Linear(4 * embed_dims, 2 * embed_dims, bias=False)

    def forward(self, x: Tensor, grid: Grid) -> Tensor:
        """Merge tokens (B, N, C) to (B, N / 4, 2C)."""
        return full_precision(self.reduction(self.norm(merge_cells(x, grid))), self)

    def merge_position(self, pe: Tensor, grid: Grid) -> Tensor:
        """Merge a PE (1, N, C) to (1, N / 4, 2C), by its own norm if there is one, else by that of the tokens."""
        norm = self.norm if self.pe_norm is None else self.pe_norm
        return full_precision(self.reduction(norm(merge_cells(pe, grid))), self)


def table_windows(windows: Sequence[int], grid: Grid, pad_small_map: bool) -> tuple[int, ...]:
    """Return the side that each stage's bias tables are made for: a window shrunk to a small map has a small table."""
    sides = []
    for window in windows:
        sides.append(window if pad_small_map else min(window, *grid))
        grid = merged_grid(grid)
    return tuple(sides)


class SwinStage(nn.Module):
    """Layers on one grid, and the step to the next one; None in the last stage."""

    def __init__(self, blocks: nn.ModuleList, downsample: PatchMerging | None):
        super().__init__()
        self.blocks = blocks
        self.downsample = downsample

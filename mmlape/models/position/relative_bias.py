"""Biases on the logits that follow from the offset of two patches: Swin's table, and ALiBi's slopes.

rpe        logits(i, j) += table[row_i - row_j, column_i - column_j]     (ICCV 2021; LaPE, ICCV 2023, Table 7)
alibi2d    logits(i, j) -= slope 2^(-8 (h + 1) / heads) |p_i - p_j|      (ICLR 2022), Euclidean, for head h
"""

from abc import ABC, abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.init import trunc_normal_

from mmlape.kinds import POSITION_ENCODINGS
from mmlape.models.grid import Grid, cached_tensor, resize_map, square_grid
from mmlape.models.position.base import AttentionPosition, AttentionSlot

TABLE, INDEX = 'relative_position_bias_table', 'relative_position_index'
CLASS_ENTRIES = 3
"""Rows of BEiT's table for the class token: as query, as key, and both."""


def offset_index(grid: Grid, device: torch.device | None = None) -> Tensor:
    """Return the table row of every (query, key) pair of a grid, (N, N)."""
    rows, columns = (torch.arange(n, device=device) for n in grid)
    cells = torch.cartesian_prod(rows, columns)  # (N, 2)
    offset = cells[:, None] - cells[None] + cells[-1]  # (N, N, 2), from 0
    return offset[..., 0] * (2 * grid[1] - 1) + offset[..., 1]


def offsets(grid: Grid, device: torch.device | None = None) -> Tensor:
    """Return the offset, query - key, of every table row, (rows of the table, 2), in float64."""
    sides = (torch.arange(1 - side, side, dtype=torch.float64, device=device) for side in grid)
    return torch.cartesian_prod(*sides)


@cached_tensor(maxsize=4)
def _flat_index(grid: Grid, device: torch.device | None) -> Tensor:
    return offset_index(grid, device).flatten()


def of_offsets(table: Tensor, grid: Grid) -> Tensor:
    """Spread the values (heads, rows of the table) of ``offsets`` over the pairs of patches, (heads, N, N)."""
    cells = grid[0] * grid[1]
    return table.index_select(1, _flat_index(tuple(grid), table.device)).view(-1, cells, cells)


def has_class_entries(table: Tensor) -> bool:
    """Check whether a table has the three rows of the class token beside those of offsets, which are an odd number."""
    return len(table) % 2 == 0


def grid_of_offsets(rows: int, known: Grid | None = None) -> Grid | None:
    """Return the grid that has so many offsets, (2h - 1) (2w - 1): ``known`` if it has; else a square; else None."""
    if known and (2 * known[0] - 1) * (2 * known[1] - 1) == rows:
        return known
    span = square_grid(rows)
    return span and tuple((side + 1) // 2 for side in span)


def is_beits(attn: dict[str, Tensor]) -> bool:
    """Check whether the table of a stored attention, by name, is BEiT's and not Swin's, which have the same name."""
    return TABLE in attn and ('q_bias' in attn or has_class_entries(attn[TABLE]))


def _resize_table(table: Tensor, src: Grid, dst: Grid, mode: str) -> Tensor:
    spans = [(2 * rows - 1, 2 * columns - 1) for rows, columns in (src, dst)]
    return resize_map(table, *spans, mode)


def _resize_affine(weight: Tensor, bias: Tensor, src: Grid, dst: Grid, mode: str) -> tuple[Tensor, Tensor]:
    """Resize the norm's parameters (N_src,) over the keys."""
    return resize_map(torch.stack((weight, bias), dim=1), src, dst, mode).unbind(1)


class OffsetBias(AttentionPosition, ABC):
    """A bias on the logits of two patches; prefix tokens get none."""

    windows = True

    @abstractmethod
    def bias(
        self, attn: nn.Module, grid: Grid, device: torch.device | None = None, dtype: torch.dtype = torch.float32
    ) -> Tensor:
        """Return the biases of the patches of a grid, (heads, N, N).

        Device and dtype are for biases that no parameter has; others are as their parameters.
        """

    def logits(self, attn: nn.Module, q: Tensor, k: Tensor, grid: Grid) -> Tensor:
        """Return the bias with zeros for prefix tokens, (1, heads, prefix + N, prefix + N)."""
        prefix = self.slot.num_prefix
        bias = self.bias(attn, grid, q.device, q.dtype)
        return F.pad(bias, (prefix, 0, prefix, 0))[None].to(q.dtype)

    def drawn(self, attn: nn.Module, grid: Grid) -> Tensor:
        """Return the mean over heads."""
        return self.bias(attn, grid).mean(0)


@POSITION_ENCODINGS.register_module('rpe')
class RelativePositionBias(OffsetBias):
    """A trained table of biases, one number a head and offset.

    The table has ((2h-1) * (2w-1), heads) entries for the grid (h, w) that it is made for, which may be a window's; it
    starts at zero, in windows as Swin's from a truncated normal with standard deviation 0.02. Other grids get it
    resized as an image of offsets. The normed form, LaPE's way to join it, has a LayerNorm of the gathered bias over
    the key axis, eps 1e-5, which is resized along.
    """

    paper_name = 'RPE'
    normed_joinings = ('lape',)
    has_grid = True

    def attach(self, attn: nn.Module, slot: AttentionSlot) -> None:
        """Register the table, the index of its own grid, and in the normed form ``pe_norm``."""
        super().attach(attn, slot)
        slot.require_resize('rpe')
        grid = slot.grid
        entries = (2 * grid[0] - 1) * (2 * grid[1] - 1)
        table = torch.zeros(entries, attn.num_heads)
        attn.register_parameter(TABLE, nn.Parameter(trunc_normal_(table, std=0.02) if slot.window else table))
        attn.register_buffer(INDEX, offset_index(grid))
        attn.pe_norm = nn.LayerNorm(grid[0] * grid[1]) if slot.normed else None

    def bias(self, attn: nn.Module, grid: Grid, *args) -> Tensor:
        """Gather the biases, (heads, N, N)."""
        built, mode = self.slot.grid, self.slot.interpolate_mode
        table, index = getattr(attn, TABLE), getattr(attn, INDEX)
        if grid != built:
            table = _resize_table(table, built, grid, mode)
            index = offset_index(grid, table.device)
        bias = table[index].permute(2, 0, 1)  # (heads, N, N)
        if attn.pe_norm is None:
            return bias
        if grid == built:
            return attn.pe_norm(bias)
        weight, shift = _resize_affine(attn.pe_norm.weight, attn.pe_norm.bias, built, grid, mode)
        return F.layer_norm(bias, weight.shape, weight, shift, attn.pe_norm.eps)

    def resize(self, stored: dict[str, Tensor], src: Grid) -> dict[str, Tensor]:
        """Resize table and norm as ``bias`` does for another grid."""
        built, mode = self.slot.grid, self.slot.interpolate_mode
        out = dict(stored, **{TABLE: _resize_table(stored[TABLE], src, built, mode), INDEX: offset_index(built)})
        names = ('pe_norm.weight', 'pe_norm.bias')
        if all(name in stored for name in names):
            out.update(zip(names, _resize_affine(*(stored[name] for name in names), src, built, mode)))
        return out

    def found_in(self, attn: dict[str, Tensor]) -> bool:
        """Check for the table, which must not be BEiT's; an attached one knows its own."""
        return TABLE in attn and (hasattr(self, 'slot') or not is_beits(attn))

    def infer_grid(self, attn: dict[str, Tensor], known: Grid | None = None) -> Grid | None:
        """Return the grid whose offsets the table has."""
        return grid_of_offsets(len(attn[TABLE]), known)


@POSITION_ENCODINGS.register_module('alibi2d')
class Alibi2d(OffsetBias):
    """Attention with linear biases: a fixed slope a head; prefix tokens are at no distance from anything.

    Args:
        slope: Factor of all slopes. The paper's, 1, is for 8 heads and more: those of 2 are 1/16 and 1/256.
    """

    paper_name = 'ALiBi'

    def __init__(self, slope: float = 1.0):
        self.slope = float(slope)

    def bias(
        self, attn: nn.Module, grid: Grid, device: torch.device | None = None, dtype: torch.dtype = torch.float32
    ) -> Tensor:
        """Return the negative distances by slope, (heads, N, N)."""
        head = torch.arange(1, attn.num_heads + 1, dtype=torch.float64, device=device)
        slopes = self.slope * 2 ** (-8 * head / attn.num_heads)
        table = -slopes[:, None] * offsets(grid, device).norm(dim=-1)
        return of_offsets(table.to(dtype), grid)

"""Patch merging (Swin, ICCV 2021): four neighbouring tokens become one of twice the width.

    x' = Linear(LN(concat(x_00, x_10, x_01, x_11)))

The PE of a layer-adaptive joining goes the same way, through a norm of its own and the shared linear map.
"""

import torch.nn.functional as F
from mmcv.cnn import build_norm_layer
from torch import Tensor, nn

from mmlape.models.grid import Grid
from mmlape.models.layers.linear import Linear
from mmlape.models.layers.transformer_layer import full_precision
from mmlape.models.position import build_pe_norm


def merged_grid(grid: Grid) -> Grid:
    """Return the grid after merging; an odd side is padded."""
    return tuple((side + 1) // 2 for side in grid)


def merge_cells(x: Tensor, grid: Grid) -> Tensor:
    """Concatenate the cells (row, column) = (0,0) (1,0) (0,1) (1,1) of tokens (B, H * W, C): (B, H/2 * W/2, 4C)."""
    (height, width), channels = grid, x.shape[-1]
    rows, columns = merged_grid(grid)
    x = x.unflatten(1, grid)
    if (2 * rows, 2 * columns) != (height, width):
        x = F.pad(x, (0, 0, 0, 2 * columns - width, 0, 2 * rows - height))
    x = x.reshape(-1, rows, 2, columns, 2, channels).permute(0, 1, 3, 4, 2, 5)
    return x.reshape(-1, rows * columns, 4 * channels)


class PatchMerging(nn.Module):
    """The step from one stage to the next.

    Args:
        embed_dims: Channels C of the tokens; there are 2C afterwards.
        norm_cfg: Of the norm of the 4C values.
        pe_norm: A key of ``PE_NORMS`` where the PE goes through a norm of its own.
    """

    def __init__(self, embed_dims: int, norm_cfg: dict, pe_norm: str | None = None):
        super().__init__()
        self.norm = build_norm_layer(norm_cfg, 4 * embed_dims)[1]
        self.pe_norm = build_pe_norm(pe_norm, 4 * embed_dims, norm_cfg) if pe_norm else None
        self.reduction = Linear(4 * embed_dims, 2 * embed_dims, bias=False)

    def forward(self, x: Tensor, grid: Grid) -> Tensor:
        """Merge tokens (B, N, C) to (B, N / 4, 2C)."""
        return full_precision(self.reduction(self.norm(merge_cells(x, grid))))

    def merge_position(self, pe: Tensor, grid: Grid) -> Tensor:
        """Merge a PE (1, N, C) to (1, N / 4, 2C), by its own norm if there is one, else by that of the tokens."""
        norm = self.norm if self.pe_norm is None else self.pe_norm
        return full_precision(self.reduction(norm(merge_cells(pe, grid))))

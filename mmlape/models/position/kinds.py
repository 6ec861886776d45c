"""Position embeddings (PE): the tables, and the only place where a PE is resized.

Absolute PE ``w`` is a table of N rows, one per token, that never depends on the image. Relative PE is a table with one
bias per head and per (row, column) difference of two patches. LaPE (ICCV 2023), Table 7, compares both families.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmlape.errors import ConfigError

ABSOLUTE_PE = ('learnable', 'sincos1d', 'sincos2d')
PE_TYPES = (*ABSOLUTE_PE, 'rpe', 'none')

Grid = tuple[int, int]


def parts(side: int, size: int) -> int:
    """How many parts of ``size`` cover ``side``; of positive terms only, which a compiler's symbolic sizes want."""
    return (side + size - 1) // size


def pad_to_multiple(x: Tensor, size: int) -> Tensor:
    """Pad the last two axes with zeros, at their ends, to multiples of ``size``."""
    height, width = x.shape[-2:]
    return F.pad(x, (0, parts(width, size) * size - width, 0, parts(height, size) * size - height))


def sincos_1d(num_tokens: int, embed_dims: int) -> Tensor:
    """Sinusoids over the token index: even channels sine, odd channels cosine.

    Returns:
        Float32 table (num_tokens, embed_dims).
    """
    channel = torch.arange(embed_dims, dtype=torch.float64)
    wavelength = 10000 ** (2 * (channel // 2) / embed_dims)
    angle = torch.arange(num_tokens, dtype=torch.float64)[:, None] / wavelength
    return torch.where(channel % 2 == 0, angle.sin(), angle.cos()).float()


def sincos_2d(grid: Grid, embed_dims: int, num_prefix: int = 0) -> Tensor:
    """Sinusoids over the column (first half of the channels) and the row (second half); zeros for prefix tokens.

    Returns:
        Float32 table (num_prefix + rows * columns, embed_dims).

    Raises:
        ConfigError: if ``embed_dims`` is not a multiple of 4.
    """
    if embed_dims % 4:
        raise ConfigError(f"pe_type='sincos2d' needs embed_dims to be a multiple of 4, not {embed_dims}")
    rows, columns = grid
    half = embed_dims // 2
    by_column = sincos_1d(columns, half).expand(rows, columns, half)
    by_row = sincos_1d(rows, half)[:, None].expand(rows, columns, half)
    table = torch.cat((by_column, by_row), dim=-1).flatten(0, 1)  # (N, D)
    return torch.cat((table.new_zeros(num_prefix, embed_dims), table))


def absolute_table(pe_type: str, grid: Grid, embed_dims: int, num_prefix: int) -> Tensor:
    """The initial absolute PE of ``pe_type``, (1, num_prefix + rows * columns, embed_dims)."""
    num_tokens = num_prefix + grid[0] * grid[1]
    if pe_type == 'learnable':
        return nn.init.trunc_normal_(torch.empty(1, num_tokens, embed_dims), std=0.02)
    if pe_type == 'sincos1d':
        return sincos_1d(num_tokens, embed_dims)[None]
    return sincos_2d(grid, embed_dims, num_prefix)[None]


def _resize_map(values: Tensor, src: Grid, dst: Grid, mode: str) -> Tensor:
    """Resize (rows * columns, C) values on a grid ``src`` to a grid ``dst``, by size, without antialiasing."""
    image = values.t().reshape(1, -1, *src)  # (1, C, rows, columns)
    corners = None if mode in ('nearest', 'nearest-exact', 'area') else False
    return F.interpolate(image, size=dst, mode=mode, align_corners=corners)[0].flatten(1).t()


def resize_absolute(pe: Tensor, src: Grid, dst: Grid, num_prefix: int, mode: str = 'bicubic') -> Tensor:
    """Resize an absolute PE from grid ``src`` to grid ``dst``; the first ``num_prefix`` rows are kept as they are.

    Args:
        pe: (1, num_prefix + N_src, D).

    Returns:
        (1, num_prefix + N_dst, D); ``pe`` itself when the grids are equal.

    Raises:
        ValueError: if the number of rows is not ``num_prefix`` plus the cells of ``src``.
    """
    if pe.shape[1] != num_prefix + src[0] * src[1]:
        raise ValueError(
            f'a position embedding of {pe.shape[1]} rows is not {num_prefix} prefix rows and a {src[0]}x{src[1]} grid'
        )
    if src == dst:
        return pe
    patches = _resize_map(pe[0, num_prefix:], src, dst, mode)
    return torch.cat((pe[:, :num_prefix], patches[None]), dim=1)


class RelativePositionBias:
    """Mixin for attention: one bias per head and per offset of two patches, (query - key) rows and columns.

    The parameter ``relative_position_bias_table`` has ((2h-1) * (2w-1), heads) entries for the grid (h, w) it is made
    for, zero-initialised; other grids get the table resized as an image of offsets. Prefix tokens get no bias. In the
    normed form (the LaPE way to join it) a LayerNorm over the key axis is applied to the gathered bias.
    """

    def init_bias(self, grid: Grid, num_heads: int, num_prefix: int, normed: bool, mode: str) -> None:
        self.bias_grid, self.bias_prefix, self.bias_mode = grid, num_prefix, mode
        self.relative_position_bias_table = nn.Parameter(torch.zeros((2 * grid[0] - 1) * (2 * grid[1] - 1), num_heads))
        self.register_buffer('relative_position_index', self.offset_index(grid))
        self.pe_norm = nn.LayerNorm(grid[0] * grid[1]) if normed else None

    @staticmethod
    def offset_index(grid: Grid, device: torch.device | None = None) -> Tensor:
        """Table row of every (query, key) pair of a grid, (N, N)."""
        rows, columns = (torch.arange(n, device=device) for n in grid)
        cells = torch.cartesian_prod(rows, columns)  # (N, 2)
        offset = cells[:, None] - cells[None] + cells[-1]  # (N, N, 2), from 0
        return offset[..., 0] * (2 * grid[1] - 1) + offset[..., 1]

    def position_bias(self, hw: Grid) -> Tensor:
        """The bias to add to the logits of a grid ``hw``, (1, heads, prefix + N, prefix + N)."""
        table, index = self.relative_position_bias_table, self.relative_position_index
        if hw != self.bias_grid:
            spans = [(2 * h - 1, 2 * w - 1) for h, w in (self.bias_grid, hw)]
            table = _resize_map(table, *spans, self.bias_mode)
            index = self.offset_index(hw, table.device)
        bias = table[index].permute(2, 0, 1)  # (heads, N, N)
        if self.pe_norm is not None:
            weight, bias_ = self.pe_norm.weight, self.pe_norm.bias
            if hw != self.bias_grid:
                affine = torch.stack((weight, bias_), dim=1)  # (N, 2)
                weight, bias_ = _resize_map(affine, self.bias_grid, hw, self.bias_mode).unbind(1)
            bias = F.layer_norm(bias, weight.shape, weight, bias_, self.pe_norm.eps)
        return F.pad(bias, (self.bias_prefix, 0, self.bias_prefix, 0))[None]

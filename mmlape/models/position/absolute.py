"""Absolute position embeddings: learnable, and sinusoids over one or two dimensions (LaPE, ICCV 2023, Table 7).

PE(p, 2i) = sin(p / 10000^(2i / D)),  PE(p, 2i + 1) = cos(p / 10000^(2i / D))      (Transformer, NeurIPS 2017)

big_vision has its sinusoids over two dimensions in MoCo v3's order: sin x, cos x, sin y, cos y.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmlape.errors import ConfigError
from mmlape.kinds import POSITION_ENCODINGS
from mmlape.models.grid import Grid, cached_tensor
from mmlape.models.position.base import AbsolutePosition


def sincos_1d(num_tokens: int, embed_dims: int) -> Tensor:
    """Build sinusoids over the token index, float64 (num_tokens, embed_dims).

    Even channels sine, odd ones cosine.
    """
    return _waves(torch.arange(num_tokens, dtype=torch.float64), embed_dims)


def _waves(positions: Tensor, embed_dims: int) -> Tensor:
    channel = torch.arange(embed_dims, dtype=torch.float64)
    angle = positions[:, None] / 10000 ** (2 * (channel // 2) / embed_dims)
    return torch.where(channel % 2 == 0, angle.sin(), angle.cos())


def sincos_2d(grid: Grid, embed_dims: int, num_prefix: int = 0) -> Tensor:
    """Build sinusoids over the column (first half of the channels) and the row (second half).

    The table is float64, (num_prefix + rows * columns, embed_dims), and zero for prefix tokens.
    """
    if embed_dims % 4:
        raise ConfigError(f"pe_type='sincos2d' needs embed_dims to be a multiple of 4, not {embed_dims}")
    rows, columns = grid
    half = embed_dims // 2
    by_column = sincos_1d(columns, half).expand(rows, columns, half)
    by_row = sincos_1d(rows, half)[:, None].expand(rows, columns, half)
    table = torch.cat((by_column, by_row), dim=-1).flatten(0, 1)  # (N, D)
    return torch.cat((table.new_zeros(num_prefix, embed_dims), table))


@POSITION_ENCODINGS.register_module('learnable')
class Learnable(AbsolutePosition):
    """A trainable table, truncated normal.

    Args:
        std: Standard deviation of the initial values; by default that of the backbone, 0.02 for
            most.
    """

    paper_name = 'learnable'
    trainable = True

    def __init__(self, std: float | None = None):
        if std is not None:
            self.std = std

    def table(self, grid: Grid, embed_dims: int, num_prefix: int) -> Tensor:
        """Build the initial table."""
        rows = num_prefix + grid[0] * grid[1]
        return nn.init.trunc_normal_(torch.empty(1, rows, embed_dims), std=self.std)


class Sinusoids(AbsolutePosition):
    """Fixed sinusoids; a subclass has their table.

    Args:
        anew: Whether another grid has the sinusoids of its own positions; otherwise the table is resized to it.
    """

    training_arguments = ('anew',)

    def __init__(self, anew: bool = False):
        self.anew = anew

    def resize(self, table: Tensor, src: Grid, dst: Grid, num_prefix: int, mode: str) -> Tensor:
        """Return the table of another grid."""
        if not self.anew or src == dst:
            return super().resize(table, src, dst, num_prefix, mode)
        of_grid = tuple(dst), table.shape[2], num_prefix
        return _anew(type(self), *of_grid, table.device, table.dtype)


@cached_tensor(maxsize=8)
def _anew(
    kind: type[Sinusoids], grid: Grid, embed_dims: int, num_prefix: int, device: torch.device, dtype: torch.dtype
) -> Tensor:
    return kind().table(grid, embed_dims, num_prefix).to(device, dtype)


@POSITION_ENCODINGS.register_module('sincos1d')
class Sincos1d(Sinusoids):
    """Fixed sinusoids over the token index, prefix tokens included."""

    paper_name = 'sincos1d'

    def table(self, grid: Grid, embed_dims: int, num_prefix: int) -> Tensor:
        """Build the table."""
        return sincos_1d(num_prefix + grid[0] * grid[1], embed_dims)[None]


@POSITION_ENCODINGS.register_module('sincos2d')
class Sincos2d(Sinusoids):
    """Fixed sinusoids over column and row; zeros for prefix tokens."""

    paper_name = 'sincos2d'

    def table(self, grid: Grid, embed_dims: int, num_prefix: int) -> Tensor:
        """Build the table."""
        return sincos_2d(grid, embed_dims, num_prefix)[None]


@POSITION_ENCODINGS.register_module('sine')
class Sine(Sinusoids):
    """DETR's fixed sinusoids: over the row (first half of the channels), then the column, as angles up to 2 pi."""

    paper_name = 'sine'

    def table(self, grid: Grid, embed_dims: int, num_prefix: int) -> Tensor:
        """Build the table, zero for prefix tokens."""
        if embed_dims % 4:
            raise ConfigError(f"pe_type='sine' needs embed_dims to be a multiple of 4, not {embed_dims}")
        angles = (2 * math.pi * torch.arange(1, side + 1, dtype=torch.float64) / (side + 1e-6) for side in grid)
        rows, columns = (_waves(angle, embed_dims // 2) for angle in angles)
        by_row, by_column = rows[:, None].expand(*grid, -1), columns.expand(*grid, -1)
        table = torch.cat((by_row, by_column), dim=-1).flatten(0, 1)  # (N, D)
        return torch.cat((table.new_zeros(num_prefix, embed_dims), table))[None]


@POSITION_ENCODINGS.register_module('sincos2d-moco')
class Sincos2dMoco(Sinusoids):
    """Fixed sinusoids over column x and row y as big_vision has them; zeros for prefix tokens.

    [sin xf, cos xf, sin yf, cos yf], with f_i = 10000^(-i / (D / 4 - 1)).
    """

    paper_name = 'sincos2d-moco'
    unstored = True

    def table(self, grid: Grid, embed_dims: int, num_prefix: int) -> Tensor:
        """Build the table."""
        if embed_dims % 4 or embed_dims < 8:
            raise ConfigError(f"pe_type='sincos2d-moco' needs embed_dims to be 8, 12, 16 ..., not {embed_dims}")
        quarter = embed_dims // 4
        frequency = 10000 ** (-torch.arange(quarter, dtype=torch.float64) / (quarter - 1))
        # (N, 2): row, column
        cells = torch.cartesian_prod(*(torch.arange(side, dtype=torch.float64) for side in grid))
        y, x = (index[:, None] * frequency for index in cells.unbind(-1))
        table = torch.cat((x.sin(), x.cos(), y.sin(), y.cos()), dim=-1)  # (N, D)
        return F.pad(table, (0, 0, num_prefix, 0))[None]

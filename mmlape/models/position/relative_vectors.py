"""Relative encodings before iRPE, on a grid as its supplement compares them: product buckets with h, shared tables.

With b the bucket of the offset of query i from key j, and p, u, v, r learnable, the logits times sqrt(d) are

    Shaw (NAACL 2018)          q_i . (k_j + p_b);  values v_j + r_b
    Huang (EMNLP 2020)         (q_i + p_b) . (k_j + p_b) - p_b . p_b
    Axial-DeepLab (ECCV 2020)  q_i . k_j + q_i . p_b + k_j . r_b;  values too. Its terms only, not one axis at a time
    Transformer-XL (ACL 2019)  (q_i + u) . k_j + (q_i + v) . (W s_b), s sinusoids of the offset
    SASA (NeurIPS 2019)        q_i . (k_j + [p_row; p_column]), of half the width each, for every offset of the grid

All but SASA have an argument ``ratio``: offsets are clipped at the integer part of twice as much.
"""

import torch
from torch import Tensor, nn

from mmlape.errors import ConfigError
from mmlape.kinds import POSITION_ENCODINGS
from mmlape.models.grid import Grid, resize_map
from mmlape.models.position.absolute import sincos_2d
from mmlape.models.position.base import AttentionPosition, AttentionSlot
from mmlape.models.position.irpe import Buckets, ImageRPE, gathered


@POSITION_ENCODINGS.register_module('shaw')
class Shaw(ImageRPE):
    """Vectors on keys and values: iRPE's contextual terms with h for g; only a record tells its tables from iRPE's."""

    paper_name = 'Shaw'
    sides = 'kv'

    def __init__(self, ratio: float = 1.9):
        super().__init__(on=self.sides, ratio=ratio, index='clip', reading='paper')


@POSITION_ENCODINGS.register_module('axial-deeplab')
class AxialDeepLab(Shaw):
    """Vectors on queries, keys and values."""

    paper_name = 'Axial-DeepLab'
    sides = 'qkv'


class _Bucketed(AttentionPosition):
    """Offsets in product buckets with h; pairs with a prefix token have a bucket of their own."""

    windows = True

    def __init__(self, ratio: float = 1.9):
        self.buckets = Buckets('product', ratio, 2 * ratio, 8 * ratio, 'clip')

    def ids(self, grid: Grid, device: torch.device) -> Tensor:
        """Return the bucket of every pair, (P + N, P + N)."""
        return self.buckets.of_grid(grid, self.slot.num_prefix, device)[0]


@POSITION_ENCODINGS.register_module('huang')
class Huang(_Bucketed):
    """One vector a bucket, on queries and on keys."""

    paper_name = 'Huang'

    def attach(self, attn: nn.Module, slot: AttentionSlot) -> None:
        """Register ``rpe_table``, (d, buckets), zero."""
        super().attach(attn, slot)
        count = self.buckets.count + bool(slot.num_prefix)
        attn.register_parameter('rpe_table', nn.Parameter(torch.zeros(attn.head_dims, count)))

    def logits(self, attn: nn.Module, q: Tensor, k: Tensor, grid: Grid) -> Tensor:
        """Return both terms, (B, heads, N, N)."""
        ids, scale = self.ids(grid, q.device), attn.head_dims**-0.5
        of_keys = gathered(k * scale, attn.rpe_table, ids.mT).mT
        return (gathered(q * scale, attn.rpe_table, ids) + of_keys).to(q.dtype)


@POSITION_ENCODINGS.register_module('transformer-xl')
class TransformerXL(_Bucketed):
    """Sinusoids of the offset through a linear map, and a bias for each head of the keys and of the offsets.

    The sinusoids are those of ``sincos2d`` for offsets counted from the most negative one; a pair with a prefix token
    has zeros.
    """

    paper_name = 'Transformer-XL'

    def attach(self, attn: nn.Module, slot: AttentionSlot) -> None:
        """Register ``rpe_proj``, ``rpe_key_bias`` (u) and ``rpe_offset_bias`` (v)."""
        super().attach(attn, slot)
        dims = attn.num_heads * attn.head_dims
        if dims % 4:
            raise ConfigError(f"pe_type='transformer-xl' needs embed_dims to be a multiple of 4, not {dims}")
        attn.rpe_proj = nn.Linear(dims, dims, bias=False)
        for name in ('rpe_key_bias', 'rpe_offset_bias'):
            attn.register_parameter(name, nn.Parameter(torch.zeros(attn.num_heads, 1, attn.head_dims)))

    def logits(self, attn: nn.Module, q: Tensor, k: Tensor, grid: Grid) -> Tensor:
        """Return the terms beside q . k, (B, heads, N, N)."""
        side, dims = self.buckets.side, attn.num_heads * attn.head_dims
        waves = sincos_2d((side, side), dims).to(attn.rpe_key_bias)  # (buckets, D)
        if self.slot.num_prefix:
            waves = torch.cat((waves, waves.new_zeros(1, dims)))
        table = attn.rpe_proj(waves).unflatten(-1, (attn.num_heads, -1)).permute(1, 2, 0)  # (heads, d, buckets)
        scale = attn.head_dims**-0.5
        of_keys = (attn.rpe_key_bias * scale) @ k.mT  # (B, heads, 1, N)
        of_offsets = gathered((q + attn.rpe_offset_bias) * scale, table, self.ids(grid, q.device))
        return (of_keys + of_offsets).to(q.dtype)

    def ambiguous_options(self, attn: dict[str, Tensor], num_prefix: int) -> list[str]:
        """Return that no tensor depends on the ratio."""
        return [f'transformer-xl with ratio={self.buckets.alpha:g}', 'transformer-xl with another ratio']


@POSITION_ENCODINGS.register_module('sasa')
class Sasa(AttentionPosition):
    """Half a vector for each offset of rows, and half for each of columns; nothing for prefix tokens.

    The tables are made for one grid; other grids get them resized.
    """

    paper_name = 'SASA'
    windows = True
    has_grid = True

    def attach(self, attn: nn.Module, slot: AttentionSlot) -> None:
        """Register ``rpe_rows`` and ``rpe_columns``, (2 n - 1, d / 2) for a side of n."""
        super().attach(attn, slot)
        slot.require_resize('sasa')
        if attn.head_dims % 2:
            raise ConfigError(f"pe_type='sasa' halves the channels of a head: {attn.head_dims} of them cannot be")
        for name, side in zip(('rpe_rows', 'rpe_columns'), slot.grid):
            attn.register_parameter(name, nn.Parameter(torch.zeros(2 * side - 1, attn.head_dims // 2)))

    def logits(self, attn: nn.Module, q: Tensor, k: Tensor, grid: Grid) -> Tensor:
        """Return the terms of rows and columns, (B, heads, N, N)."""
        prefix, total = self.slot.num_prefix, 0
        parts = (q[:, :, prefix:] * attn.head_dims**-0.5).chunk(2, dim=-1)
        cells = torch.cartesian_prod(*(torch.arange(side, device=q.device) for side in grid)).mT
        tables = self.resize({'rpe_rows': attn.rpe_rows, 'rpe_columns': attn.rpe_columns}, self.slot.grid, grid)
        for part, table, cell, side in zip(parts, tables.values(), cells, grid):
            total = total + gathered(part, table.mT, cell[:, None] - cell + side - 1)
        return nn.functional.pad(total, (prefix, 0, prefix, 0)).to(q.dtype)

    def resize(self, stored: dict[str, Tensor], src: Grid, dst: Grid | None = None) -> dict[str, Tensor]:
        """Resize both tables, as images of one row, to ``dst`` or the grid of this slot."""
        out, dst = dict(stored), dst or self.slot.grid
        for name, old, new in zip(('rpe_rows', 'rpe_columns'), src, dst):
            if old != new:
                mode = self.slot.interpolate_mode
                out[name] = resize_map(stored[name], (1, 2 * old - 1), (1, 2 * new - 1), mode)
        return out

    def found_in(self, attn: dict[str, Tensor]) -> bool:
        """Check for the tables."""
        return 'rpe_rows' in attn

    def infer_grid(self, attn: dict[str, Tensor], known: Grid | None = None) -> Grid:
        """Return the grid whose offsets the tables have."""
        return tuple((len(attn[name]) + 1) // 2 for name in ('rpe_rows', 'rpe_columns'))

"""The layers of Plain-DETR (2308.01904): queries attend to all cells of one map, biased by their boxes.

With the corners (l, t, r, b) of a query's box and the centre (x, y) of a cell, in pixels, BoxRPB is

    bias = MLP_x(l - x, r - x) + MLP_y(t - y, b - y),   one value for each head
    y = softmax(q k^T / sqrt(d) + bias) v

so the MLPs run on columns and rows, and not on all cells.
"""

from collections.abc import Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchvision.ops import box_convert

from mmlape.models.grid import Grid

to_corners = partial(box_convert, in_fmt='cxcywh', out_fmt='xyxy')
"""Returns left, top, right and bottom of boxes (..., 4)."""
MASKED = -100.0
"""Added to attention scores of padding."""


def sinusoids(places: Tensor, dims: int) -> Tensor:
    """Return sine and cosine, in turns, of places (...) at ``dims / 2`` frequencies, (..., dims)."""
    numbers = torch.arange(dims // 2, dtype=places.dtype, device=places.device)
    angles = places[..., None] / 10000 ** (2 * numbers / dims)
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(-2)


class Perceptron(nn.Module):
    """Linear layers with ReLU between them."""

    def __init__(self, dims: int, out_dims: int, num_layers: int = 3):
        super().__init__()
        widths = [dims] * num_layers
        self.layers = nn.ModuleList(nn.Linear(*pair) for pair in zip(widths, [*widths[1:], out_dims]))

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., dims)."""
        for layer in self.layers[:-1]:
            x = F.relu(layer(x))
        return self.layers[-1](x)


class ChannelNorm(nn.Module):
    """A layer norm of the channels of maps (B, C, H, W)."""

    def __init__(self, channels: int):
        super().__init__()
        self.ln = nn.LayerNorm(channels)

    def forward(self, x: Tensor) -> Tensor:
        """Norm each cell."""
        return self.ln(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


def rescaling(dims: int, octaves: int) -> nn.Module:
    """Return layers that change the sides of a map by 2 ** -octaves."""
    if not octaves:
        return nn.Identity()
    kind = nn.Conv2d if octaves > 0 else nn.ConvTranspose2d
    layers: list[nn.Module] = []
    for _ in range(abs(octaves)):
        layers += [kind(dims, dims, kernel_size=2, stride=2), ChannelNorm(dims), nn.GELU()]
    return nn.Sequential(*layers[:-2])


def _heads(x: Tensor, num_heads: int) -> Tensor:
    """Return (B, N, D) as (B, heads, N, d)."""
    return x.unflatten(-1, (num_heads, -1)).transpose(1, 2)


class SelfAttention(nn.MultiheadAttention):
    """PyTorch's module, whose parameters are used, in a form that graphs of any batch take."""

    def forward(self, seen: Tensor, x: Tensor, padding: Tensor | None = None) -> Tensor:
        """Attend to tokens x (B, N, D) by queries and keys of ``seen``; ``padding`` (B, N) is not attended to."""
        dims = 2 * self.embed_dim
        q, k = F.linear(seen, self.in_proj_weight[:dims], self.in_proj_bias[:dims]).chunk(2, -1)
        v = F.linear(x, self.in_proj_weight[dims:], self.in_proj_bias[dims:])
        mask = None if padding is None else ~padding[:, None, None]
        out = F.scaled_dot_product_attention(*(_heads(part, self.num_heads) for part in (q, k, v)), mask)
        return self.out_proj(out.transpose(1, 2).flatten(2))


class PlainEncoderLayer(nn.Module):
    """A layer of DETR's encoder (ECCV 2020) with norms behind attention and MLP."""

    def __init__(self, dims: int, num_heads: int, hidden: int):
        super().__init__()
        self.self_attn = SelfAttention(dims, num_heads)
        self.linear1, self.linear2 = nn.Linear(dims, hidden), nn.Linear(hidden, dims)
        self.norm1, self.norm2 = nn.LayerNorm(dims), nn.LayerNorm(dims)

    def forward(self, x: Tensor, pe: Tensor, padding: Tensor | None) -> Tensor:
        """Map the tokens (B, N, D) of a map with its PE; ``padding`` (B, N) is true outside of the image."""
        x = self.norm1(x + self.self_attn(x + pe, x, padding))
        return self.norm2(x + self.linear2(F.relu(self.linear1(x))))


class BoxAttention(nn.Module):
    """Cross-attention to all cells with BoxRPB.

    Args:
        dims: Of queries and cells.
        num_heads: Of the attention.
        hidden: Width of BoxRPB's MLPs.
        patch_size: Pixels from cell to cell.
    """

    def __init__(self, dims: int, num_heads: int, hidden: int, patch_size: int):
        super().__init__()
        self.num_heads, self.patch_size = num_heads, patch_size
        self.q, self.k, self.v, self.proj = (nn.Linear(dims, dims) for _ in range(4))
        self.cpb_mlp1, self.cpb_mlp2 = (
            nn.Sequential(nn.Linear(2, hidden), nn.ReLU(), nn.Linear(hidden, num_heads, bias=False)) for _ in range(2)
        )

    def forward(
        self, queries: Tensor, boxes: Tensor, keys: Tensor, values: Tensor, grid: Grid, padding: Tensor | None
    ) -> Tensor:
        """Map queries (B, Q, D) with boxes (B, Q, 4) by the cells (B, N, D) of a map ``grid``."""
        pairs = (self.q, queries), (self.k, keys), (self.v, values)
        q, k, v = (_heads(project(x), self.num_heads) for project, x in pairs)
        bias = self.bias(boxes, grid)
        if padding is not None:
            bias = bias + MASKED * padding[:, None, None]
        out = F.scaled_dot_product_attention(q, k, v, bias.to(q.dtype))
        return self.proj(out.transpose(1, 2).flatten(2))

    def bias(self, boxes: Tensor, grid: Grid) -> Tensor:
        """Return BoxRPB, (B, heads, Q, N)."""
        corners = to_corners(boxes)[:, :, None]  # (B, Q, 1, 4)
        down, across = (
            (torch.arange(cells, dtype=boxes.dtype, device=boxes.device)[:, None] + 0.5) * self.patch_size
            for cells in grid
        )
        of_columns = self.cpb_mlp1(corners[..., 0::2] - across)  # (B, Q, columns, heads)
        of_rows = self.cpb_mlp2(corners[..., 1::2] - down)
        bias = of_rows[:, :, :, None] + of_columns[:, :, None]
        return bias.flatten(2, 3).permute(0, 3, 1, 2).contiguous()


class DecoderLayer(nn.Module):
    """Self-attention of the queries, attention to the map, and an MLP, with norms before each."""

    def __init__(self, dims: int, num_heads: int, hidden: int, cross_attn: BoxAttention):
        super().__init__()
        self.cross_attn = cross_attn
        self.self_attn = SelfAttention(dims, num_heads)
        self.linear1, self.linear2 = nn.Linear(dims, hidden), nn.Linear(hidden, dims)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(dims) for _ in range(3))

    def forward(
        self,
        x: Tensor,
        pos: Tensor,
        boxes: Tensor,
        groups: Sequence[int],
        keys: Tensor,
        values: Tensor,
        grid: Grid,
        padding: Tensor | None,
    ) -> Tensor:
        """Map queries (B, Q, D) with an embedding of their boxes; those of a group attend to each other alone.

        Args:
            x: The queries.
            pos: What is added to those that attend, (B, Q, D).
            boxes: (B, Q, 4).
            groups: How many queries each group has.
            keys: The cells of the map with their PE, (B, N, D).
            values: The cells, (B, N, D).
            grid: Rows and columns of the map.
            padding: True for cells outside of the image, (B, N); None for none.
        """
        normed = self.norm2(x)
        parts = zip((normed + pos).split(groups, 1), normed.split(groups, 1))
        attended = [self.self_attn(seen, part) for seen, part in parts]
        x = x + torch.cat(attended, 1)
        x = x + self.cross_attn(self.norm1(x) + pos, boxes, keys, values, grid, padding)
        return x + self.linear2(F.relu(self.linear1(self.norm3(x))))

"""Where tokens read a table of the absolute PE: at moved coordinates, or in a window of it.

On an axis whose n tokens read R rows, token i reads at the coordinate

    x_i = a + (i + 1/2) s R / n - 1/2,   a = (1 - s) R (1/2 + t (v - 1/2)),   s = r^-u      u, v uniform from 0 to 1

between the rows around it. With s = 1 these are the coordinates of the usual resizing; a smaller s is a part of the
table, in which neighbours are closer together, as they are in a table that is resized to a larger canvas. r is the
strength (CAPE, NeurIPS 2021, rescales the coordinates of sinusoids so; ViTAR, arXiv 2403.18361, those of a table).
"""

import torch
from torch import Tensor

from mmlape.models.grid import Grid

READ_MODES = tuple(mode + how for mode in ('bilinear', 'bicubic') for how in ('', '-corners', '-offset', '-antialias'))
"""Modes of resizing that can also read between rows."""
_A = -0.75  # of torch's bicubic kernel


def part_coordinates(share: Tensor, place: Tensor, rows: int, tokens: int, rescale: float, shift: float) -> Tensor:
    """Return the coordinates x_i of the tokens of an axis, (tokens,) or (B, tokens).

    Args:
        share: A random number u from 0 to 1, (1,) or (B, 1).
        place: Another one, v.
        rows: Rows R of the table on this axis.
        tokens: Tokens n.
        rescale: The strength r, at least 1.
        shift: How far from the middle parts lie, t: 0 in the middle, 1 anywhere in the table.
    """
    spacing = rescale**-share
    start = (1 - spacing) * rows * (0.5 + shift * (place - 0.5))
    centres = torch.arange(tokens, device=share.device, dtype=share.dtype) + 0.5
    return start + spacing * (rows / tokens) * centres - 0.5


def window_coordinates(place: Tensor, rows: int, tokens: int) -> Tensor:
    """Return the rows that a window of an axis has, or the coordinates of all rows where more tokens are than rows.

    ``place`` is a random number from 0 to 1, (1,) or (B, 1).
    """
    index = torch.arange(tokens, device=place.device, dtype=place.dtype)
    if tokens > rows:
        return ((index + 0.5) * rows / tokens - 0.5).expand(*place.shape[:-1], -1)
    free = rows - tokens
    return (place * (free + 1)).floor().clamp(max=free) + index


def reading_matrix(coordinates: Tensor, rows: int, mode: str) -> Tensor:
    """Return the weights of the rows at each coordinate, (..., tokens, rows).

    The kernel is the mode's. Coordinates are at most half a step outside; rows beyond the ends are
    those at the ends.
    """
    row = torch.arange(-2, rows + 2, device=coordinates.device, dtype=coordinates.dtype)
    distance = (coordinates[..., None] - row).abs()
    if mode.startswith('bilinear'):
        weights = (1 - distance).clamp(min=0)
    else:
        near = ((_A + 2) * distance - (_A + 3)) * distance**2 + 1
        far = _A * (((distance - 5) * distance + 8) * distance - 4)
        weights = torch.where(distance <= 1, near, torch.where(distance < 2, far, 0.0))
    inside = weights[..., 2:-2]
    first, last = weights[..., :2].sum(-1, keepdim=True), weights[..., -2:].sum(-1, keepdim=True)
    zeros = torch.zeros_like(inside[..., 1:])
    return inside + torch.cat((first, zeros), dim=-1) + torch.cat((zeros, last), dim=-1)


def read_patches(patches: Tensor, src: Grid, coordinates: tuple[Tensor, Tensor], mode: str) -> Tensor:
    """Read rows (rows * columns, D) of a table at coordinates of both axes, (tokens,) or (B, tokens) each.

    Returns:
        (1 or B, N, D), in the precision of the table, computed in float32 at least.
    """
    wide = torch.promote_types(patches.dtype, torch.float32)
    down, across = (reading_matrix(along, side, mode).to(wide) for along, side in zip(coordinates, src))
    with torch.autocast(patches.device.type, enabled=False):  # which would round the products
        read = down @ patches.to(wide).unflatten(0, src).flatten(1)  # (..., rows', columns * D)
        read = across[..., None, :, :] @ read.unflatten(-1, (src[1], -1))  # (..., rows', columns', D)
    return read.flatten(-3, -2).reshape(-1, down.shape[-2] * across.shape[-2], patches.shape[-1]).to(patches.dtype)


def middle_of(table: Tensor, src: Grid, size: Grid, num_prefix: int) -> Tensor:
    """Return the rows of prefix tokens and the window in the middle of a table (1, num_prefix + N_src, D)."""
    top, left = ((have - side) // 2 for have, side in zip(src, size))
    cells = table[:, num_prefix:].unflatten(1, src)
    window = cells[:, top : top + size[0], left : left + size[1]].flatten(1, 2)
    return torch.cat((table[:, :num_prefix], window), dim=1)

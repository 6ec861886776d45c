"""Boxes (x, y, w, h) in pixels, by their centre, as differences from reference boxes (Plain-DETR, 2308.01904).

With a reference r and differences d,

    (x, y) = r_xy + r_wh d_xy,   (w, h) = r_wh exp(d_wh),   clipped to the image

so that the loss of a box is relative to its size.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

LARGEST = abs(math.log(16 / 1000))
"""The largest absolute d_wh: nothing grows or shrinks more than by 62.5."""
MARGIN = 0.1
"""Added in pixels to the sides of references, which may be zero."""


def to_corners(boxes: Tensor) -> Tensor:
    """Return left, top, right, bottom of boxes (..., 4)."""
    centre, half = boxes[..., :2], 0.5 * boxes[..., 2:]
    return torch.cat((centre - half, centre + half), -1)


def from_corners(corners: Tensor) -> Tensor:
    """Return (x, y, w, h) of corners (..., 4)."""
    first, last = corners[..., :2], corners[..., 2:]
    return torch.cat(((first + last) / 2, last - first), -1)


def decode(references: Tensor, deltas: Tensor, sizes: Tensor) -> Tensor:
    """Return the boxes (B, N, 4) of differences; ``sizes`` (B, 1, 2) are width and height of the images."""
    centres = references[..., :2] + references[..., 2:] * deltas[..., :2]
    sides = references[..., 2:] * deltas[..., 2:].clamp(-LARGEST, LARGEST).exp()
    corners = to_corners(torch.cat((centres, sides), -1))
    return from_corners(corners.clamp(min=0).clamp(max=sizes.repeat(1, 1, 2)))


def encode(references: Tensor, boxes: Tensor) -> Tensor:
    """Return the differences that make boxes (..., 4) of references."""
    sides = references[..., 2:] + MARGIN
    return torch.cat(((boxes[..., :2] - references[..., :2]) / sides, (boxes[..., 2:] / sides).log()), -1)


class Boxes(NamedTuple):
    """What one stage predicts of N boxes of each of B images."""

    logits: Tensor  # of each class, (B, N, K)
    boxes: Tensor  # (B, N, 4)
    references: Tensor  # what the boxes are differences from, (B, N, 4)
    deltas: Tensor  # the differences, (B, N, 4)

    def rows(self, which: slice) -> 'Boxes':
        """Return some of the boxes."""
        return Boxes(*(part[:, which] for part in self))

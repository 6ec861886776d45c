"""Windows of an image beside the complete one (DINOv3, 2508.10104): maps of a large image from a ViT of smaller ones.

An image is cut into n x n windows of complete patches, of which the last ones may be smaller. The map is that of the
image, resized to the size of a window and back, and those of the windows side by side, concatenated.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from mmlape.errors import DataError
from mmlape.models.grid import Grid


def sides(size: int, count: int, patch_size: int) -> list[int]:
    """Return the sides of windows along an axis of an image.

    Raises:
        DataError: If nothing is left for the last one.
    """
    side = -(-(size // count) // patch_size) * patch_size
    last = size - side * (count - 1)
    if last <= 0:
        raise DataError(
            f'an image with a side of {size} pixels has no {count} windows of patches of {patch_size}: '
            'give larger images, or set windows to less'
        )
    return [side] * (count - 1) + [last]


def windowed(backbone: Callable[[Tensor], Tensor], images: Tensor, count: int, patch_size: int) -> Tensor:
    """Return the map (B, 2 C, h, w) of images (B, 3, H, W) by a backbone with maps of C channels.

    Args:
        backbone: Makes a map of images.
        images: Normalised.
        count: How many windows there are along each axis.
        patch_size: Of the backbone.
    """
    heights, widths = (sides(size, count, patch_size) for size in images.shape[2:])
    rows = [torch.cat([backbone(window) for window in row.split(widths, 3)], 3) for row in images.split(heights, 2)]
    local = torch.cat(rows, 2)
    together = backbone(_resized(images, (heights[0], widths[0])))
    return torch.cat((_resized(together, tuple(local.shape[2:])), local), 1)


def _resized(maps: Tensor, size: Grid) -> Tensor:
    return F.interpolate(maps, size, mode='bilinear', antialias=True)

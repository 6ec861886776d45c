"""The images of a probe: squares, or the shape of the model's grid, cut out of the middle of files.

All windows of an image are parts of one canvas, so that the same content is in each of them, at the
same scale and on the same borders of patches.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from mmlape.errors import DataError, shown
from mmlape.lab.datasets.folders import files_below, is_image
from mmlape.models.grid import Grid

LEAST = 10
"""Images, of which five folds are held out in turn."""
MINI = Path('data/mini/coco')
"""Where `mmlape make-mini-data data/mini` writes images."""


def find_images(folder: str | Path, count: int) -> list[Path]:
    """Return so many images of a folder and those below it, spread evenly over their sorted names.

    Raises:
        DataError: If there is no such folder, or it has fewer images than `LEAST`.
    """
    root = Path(folder)
    if not root.is_dir():
        hint = '; `mmlape make-mini-data data/mini` writes the mini data' if root == MINI else ''
        raise DataError(f'{root}: no such folder of images: give another by --images DIR{hint}')
    names = sorted(name for name in files_below(str(root)) if is_image(name))
    if len(names) < LEAST:
        raise DataError(
            f'{root}: {len(names)} images, and a probe needs {LEAST} or more, of which it holds a fifth out'
        )
    places = np.linspace(0, len(names) - 1, min(count, len(names))).round().astype(int)
    return [root / names[place] for place in places]


@dataclass(frozen=True)
class Canvases:
    """Images on the largest canvas that is asked for, of which windows are cut.

    Attributes:
        pixels: (n, rows * patch, columns * patch, C), from 0 to 255.
        patch: The side of a patch in pixels.
        enlarged: How many images were smaller than the canvas.
        skipped: Files that could not be read, with the reason.
    """

    pixels: np.ndarray
    patch: int
    enlarged: int
    skipped: list[tuple[Path, str]]

    def __len__(self) -> int:
        return len(self.pixels)

    @property
    def grid(self) -> Grid:
        """The grid of the complete canvas."""
        rows, columns = self.pixels.shape[1:3]
        return rows // self.patch, columns // self.patch

    def corner(self, grid: Grid) -> Grid:
        """Return the first cell (row, column) of the window of a grid in the middle."""
        return (self.grid[0] - grid[0]) // 2, (self.grid[1] - grid[1]) // 2

    def windows(self, places: Sequence[int], grid: Grid, shift: int = 0) -> Tensor:
        """Return windows (B, C, H, W) of images, from the middle, moved down and right by patches."""
        row, column = (first + shift for first in self.corner(grid))
        rows = slice(row * self.patch, (row + grid[0]) * self.patch)
        columns = slice(column * self.patch, (column + grid[1]) * self.patch)
        cut = torch.from_numpy(self.pixels[list(places), rows, columns])
        return cut.permute(0, 3, 1, 2).float().contiguous()


def read_canvases(files: Sequence[Path], grid: Grid, patch: int, channels: int) -> Canvases:
    """Read images onto canvases of a grid: resized to cover it, and cut to it in the middle.

    Files that cannot be read are skipped.

    Raises:
        DataError: If fewer than `LEAST` can be read.
    """
    height, width = grid[0] * patch, grid[1] * patch
    found, skipped, enlarged = [], [], 0
    for file in files:
        try:
            with Image.open(file) as opened:
                image = ImageOps.exif_transpose(opened).convert('RGB' if channels == 3 else 'L')
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            skipped.append((file, shown(error)))
            continue
        enlarged += image.width < width or image.height < height
        fitted = ImageOps.fit(image, (width, height), Image.Resampling.BICUBIC)
        found.append(np.asarray(fitted).reshape(height, width, channels))
    if len(found) < LEAST:
        first = f' ({skipped[0][0]}: {skipped[0][1]})' if skipped else ''
        raise DataError(f'{len(found)} images can be read, and a probe needs {LEAST} or more{first}')
    return Canvases(np.stack(found), patch, enlarged, skipped)


def patch_pixels(images: Tensor, grid: Grid, side: int = 4) -> Tensor:
    """Return the content of each patch of images (B, C, H, W), as side x side means: (B, N, C * side**2)."""
    small = torch.nn.functional.adaptive_avg_pool2d(images, (grid[0] * side, grid[1] * side))
    cells = small.unflatten(3, (grid[1], side)).unflatten(2, (grid[0], side))
    return cells.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)

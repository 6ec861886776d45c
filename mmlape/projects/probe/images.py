"""The images of a probe: cut out of the middle of files, in the shape of the model's grid."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from mmlape.console.quiet import say
from mmlape.errors import DataError, shown
from mmlape.lab.datasets.folders import files_below, is_image
from mmlape.models.grid import Grid


def find_images(folder: str | Path, count: int) -> list[Path]:
    """Return so many images of a folder and those below it, spread evenly over their sorted names.

    Raises:
        DataError: If there is no such folder.
    """
    root = Path(folder)
    if not root.is_dir():
        raise DataError(f'{root}: no such folder of images: give --images DIR; `mmlape make-mini-data` makes one')
    names = sorted(name for name in files_below(str(root)) if is_image(name))
    places = np.linspace(0, len(names) - 1, min(count, len(names))).round().astype(int)
    return [root / names[place] for place in places]


def read_images(files: Sequence[Path], grid: Grid, patch: int) -> Tensor:
    """Return images (n, 3, rows * patch, columns * patch), from 0 to 255; files that cannot be read are skipped.

    Raises:
        DataError: If there are fewer than ten.
    """
    height, width, found = grid[0] * patch, grid[1] * patch, []
    for file in files:
        try:
            with Image.open(file) as opened:
                image = ImageOps.exif_transpose(opened).convert('RGB')
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            say(f'skipped: {file}: {shown(error)}')
            continue
        fitted = ImageOps.fit(image, (width, height), Image.Resampling.BICUBIC)
        found.append(torch.from_numpy(np.array(fitted)).permute(2, 0, 1))
    if len(found) < 10:  # of which five folds are held out in turn
        raise DataError(f'{len(found)} images can be read, and a probe needs 10 or more: give more by --images')
    return torch.stack(found)


def patch_pixels(images: Tensor, grid: Grid, side: int = 4) -> Tensor:
    """Return the content of each patch of images (B, C, H, W), as side x side means: (B, N, C * side**2)."""
    small = torch.nn.functional.adaptive_avg_pool2d(images, (grid[0] * side, grid[1] * side))
    cells = small.unflatten(3, (grid[1], side)).unflatten(2, (grid[0], side))
    return cells.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)

"""How a checkpoint of a backbone is loaded."""

from dataclasses import dataclass
from operator import index
from typing import Any

import numpy as np

from mmlape.errors import ConfigError


def require_grid(grid: Any, key: str) -> tuple[int, int]:
    """Return a grid of patches as (rows, columns); an integer is a square, NumPy's and torch's are integers too.

    Raises:
        ConfigError: If it is none.
    """
    try:
        sides = [index(side) for side in (grid if np.ndim(grid) else (grid, grid))]
    except (TypeError, ValueError):
        sides = []
    if len(sides) != 2 or min(sides) < 1:
        raise ConfigError(f'{key}={grid!r} is no grid: give (rows, columns) of patches')
    return sides[0], sides[1]


@dataclass(frozen=True)
class LoadOptions:
    """How a backbone's checkpoint is loaded."""

    # (rows, columns) of the stored PE, needed when it is not square
    grid: tuple[int, int] | None = None
    # load a checkpoint trained with LaPE into a model without it, or the reverse; of files with the
    # same keys, do not warn that they record another joining
    allow_joining_mismatch: bool = False
    # fit filters for images of 3 channels, or of 1, to those of the model
    adapt_channels: bool = False

    def __post_init__(self):
        if self.grid is not None:
            object.__setattr__(self, 'grid', require_grid(self.grid, 'grid'))

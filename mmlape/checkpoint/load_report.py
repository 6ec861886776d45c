"""How a checkpoint is loaded, and what loading did."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import index
from typing import Any

import numpy as np
from torch import Tensor

from mmlape.checkpoint.metadata import Normalisation
from mmlape.errors import ConfigError


def require_grid(grid: Any, key: str) -> tuple[int, int]:
    """Return a grid of patches as (rows, columns); an integer is a square, NumPy's and torch's are integers too.

    Raises:
        ConfigError: If it is none.
    """
    sides = (grid, grid) if _is_whole(grid) else grid
    is_pair = isinstance(sides, Sequence | np.ndarray | Tensor) and not isinstance(sides, str)
    if not is_pair or len(sides) != 2 or not all(map(_is_whole, sides)) or min(sides) < 1:
        raise ConfigError(f'{key}={grid!r} is no grid: give (rows, columns) of patches')
    return index(sides[0]), index(sides[1])


def _is_whole(value: Any) -> bool:
    is_flag = isinstance(value, bool | np.bool_)
    try:
        return not is_flag and index(value) is not None
    except (TypeError, ValueError):
        return False


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


@dataclass
class LoadReport:
    """What loading did."""

    path: str  # the file
    layout: str  # the recognised layout
    total: int = 0  # how many tensors the model has
    loaded: list[str] = field(default_factory=list)  # names that got the checkpoint's values
    renamed: str = ''  # how many tensors of a released model got other names, and whose they were
    new: list[str] = field(default_factory=list)  # names that keep their initial values, and may
    # names of the checkpoint that this model has no place for
    dropped: list[str] = field(default_factory=list)
    resized: dict[str, str] = field(default_factory=dict)  # name to 'from -> to'
    problems: list[str] = field(default_factory=list)  # what strict loading refuses
    # what loads, but is probably not what was meant
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # what the file does not tell
    # of the images that the weights want; None if it is unknown
    normalisation: Normalisation | None = None

    def __str__(self) -> str:
        lines = [
            f'checkpoint {self.path} ({self.layout} layout): loaded {len(self.loaded)} of '
            f'{self.total}'
        ]
        lines += [f'  {summary_of_resized(self.resized)}'] if self.resized else []
        lines += [f'  renamed: {self.renamed}'] if self.renamed else []
        lines += [f'  new: {summary(self.new)}'] if self.new else []
        lines += [f'  dropped: {summary(self.dropped)}'] if self.dropped else []
        lines += [f'  problem: {problem}' for problem in self.problems]
        lines += [f'  note: {note}' for note in self.notes]
        return '\n'.join(lines)


def summary(names: list[str]) -> str:
    """Join names with layer numbers left out: 'blocks.*.gamma1 (12)'."""
    groups = Counter(re.sub(r'\.\d+\.', '.*.', name) for name in names)
    return ', '.join(key if count == 1 else f'{key} ({count})' for key, count in groups.items())


def summary_of_resized(resized: dict[str, str]) -> str:
    """Return 'resized pos_embed: 14x14 -> 32x32' for names and what happened to them."""
    changes = {
        how: [name for name in resized if resized[name] == how]
        for how in dict.fromkeys(resized.values())
    }
    return '; '.join(f'resized {summary(names)}: {how}' for how, names in changes.items())

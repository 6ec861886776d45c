"""How a checkpoint of a backbone is loaded; and filters for images of other channels, as timm makes them.

    one channel: sum_c w_c;    n of m channels: w_(i mod m) m / n

So a gray image has the outputs of its copies in three channels. A norm of the patches' values goes into the map behind
it first: its scale and shift are of channels, too.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from operator import index
from typing import Any

import numpy as np
from torch import Tensor

from mmlape.checkpoint.exact_loading import LoadReport
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


OF_IMAGES = (1, 3)
"""Channels of the images that public weights read."""


def fit_channels(
    tensors: dict[str, Tensor], wanted: Mapping[str, Tensor], options: LoadOptions, report: LoadReport
) -> dict[str, Tensor]:
    """Return tensors whose filters of the image have the channels of a model's, ``wanted``; say how where not asked.

    A filter of the image is one of as many channels as images of public weights have, while the
    model's has others and the same shape else.
    """
    out = dict(tensors)
    for name, kernel in tensors.items():
        kernel_of_model = wanted.get(name)
        if kernel_of_model is None or not _reads_other_channels(kernel, kernel_of_model):
            continue
        have, channels = kernel.shape[1], kernel_of_model.shape[1]
        if not options.adapt_channels:
            report.problems.append(
                f'wrong channels: {name} reads images of {have}, and the model has '
                f'in_channels={channels}; adapt_channels=True (in init_cfg, or of '
                'mmlape.load_weights) sums or repeats its filters as timm does'
            )
            continue
        _fold_norm(out, name, kernel_of_model)
        out[name] = with_channels(out[name], channels)
        report.resized[name] = f'{have} -> {channels} channels'
    return out


def _reads_other_channels(kernel: Tensor, kernel_of_model: Tensor) -> bool:
    if kernel.ndim != 4 or kernel_of_model.ndim != 4 or kernel.shape[1] not in OF_IMAGES:
        return False
    same = kernel.shape[:1] + kernel.shape[2:] == kernel_of_model.shape[:1] + kernel_of_model.shape[2:]
    return same and kernel.shape[1] != kernel_of_model.shape[1]


def with_channels(kernel: Tensor, channels: int) -> Tensor:
    """Return a filter (D, C, P, P) of the image for other channels, of the sums that copies of a gray image have."""
    have, values = kernel.shape[1], kernel.float()
    if channels == 1:
        return values.sum(1, keepdim=True).to(kernel.dtype)
    repeated = values.repeat(1, math.ceil(channels / have), 1, 1)[:, :channels]
    return (repeated * (have / channels)).to(kernel.dtype)


def _fold_norm(tensors: dict[str, Tensor], name: str, kernel_of_model: Tensor) -> None:
    """Put scale and shift of the norm before a stem's map into the map; what is left of it is the identity."""
    stem = name.removesuffix('proj.weight')
    scale, shift = (tensors.get(f'{stem}norm0.{leaf}') for leaf in ('weight', 'bias'))
    if scale is None:
        return
    kernel = tensors[name]
    if shift is not None:
        moved = (kernel * shift.view(kernel.shape[1:])).flatten(1).sum(1)
        tensors[f'{stem}proj.bias'] = tensors[f'{stem}proj.bias'] + moved
        tensors[f'{stem}norm0.bias'] = shift.new_zeros(kernel_of_model[0].numel())
    tensors[name] = kernel * scale.view(kernel.shape[1:])
    tensors[f'{stem}norm0.weight'] = scale.new_ones(kernel_of_model[0].numel())

"""Find the model that a file is of by comparison: names and shapes of its tensors are those of the model.

Candidates are filtered by width and depth before one is built, on the meta device.
"""

from collections.abc import Mapping
from inspect import signature as parameters_of
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from mmlape.errors import MMLaPEError
from mmlape.kinds import BACKBONES

DERIVED = ('relative_position_index',)
"""Ends of the names of tensors that a model computes from its arguments, and that not every file has."""

Signature = frozenset[tuple[str, tuple[int, ...]]]
Size = tuple[int | None, int | None]
"""The width of the first layer's tokens and the number of layers, as far as they are known."""


class Match(NamedTuple):
    """The configuration of a file's model."""

    name: str  # of the model; '' for one without
    config: dict[str, Any]  # ``type`` and arguments, for the grid of the file's position encoding
    # on the meta device, with the file's names and shapes; None where the file records the configuration
    model: nn.Module | None


def signature(tensors: Mapping[str, Tensor]) -> Signature:
    """Return names and shapes of tensors, but for what a model computes itself."""
    return frozenset((name, tuple(value.shape)) for name, value in tensors.items() if not name.endswith(DERIVED))


def class_of(config: Mapping[str, Any]) -> type | None:
    """Return the class of a backbone's configuration; None if it is not known."""
    return BACKBONES.get(str(config.get('type')).rpartition('.')[2])


def size_of(config: Mapping[str, Any]) -> Size:
    """Return the size that a configuration says, without building the model."""
    model_class = class_of(config)
    parameter = parameters_of(model_class).parameters.get('arch') if model_class else None
    if parameter is None:
        return None, None
    arch = config.get('arch', parameter.default)
    arch = model_class.archs.get(arch, {}) if isinstance(arch, str) else arch
    depths = arch.get('depths')
    return arch.get('embed_dims'), sum(depths) if depths else arch.get('num_layers')


def build(config: Mapping[str, Any]) -> nn.Module | None:
    """Build a backbone on the meta device; None if its class is unknown or refuses an argument."""
    model_class = class_of(config)
    options = {key: value for key, value in config.items() if key not in ('type', 'init_cfg')}
    try:
        with torch.device('meta'):
            return model_class(**options) if model_class else None
    except (MMLaPEError, TypeError, ValueError):
        return None

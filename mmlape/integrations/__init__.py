"""The adapter's pyramid in other libraries.

A module for each, which needs that library and nothing of OpenMMLab. Here stands what every library is given: a
backbone with maps at the strides 4, 8, 16 and 32, built from its name.
"""

from collections.abc import Mapping
from typing import Any

from mmlape import models
from mmlape.errors import ConfigError, require_choice

STRIDES = (4, 8, 16, 32)


def build_pyramid(name: str, options: Mapping[str, Any], where: str) -> Any:
    """Build a backbone of ``mmlape.models`` from the name of its class and its arguments.

    ``where`` is what messages begin with.

    Raises:
        ConfigError: For an unknown name, arguments that the backbone does not take, and one without
            four maps.
    """
    require_choice('name', name, models.BACKBONES, where)
    try:
        backbone: Any = getattr(models, name)(**options)
    except TypeError as error:
        raise ConfigError(f'{where}{name} does not take {dict(options)}: {error}') from error
    if tuple(backbone.strides) != STRIDES:
        strides = ', '.join(map(str, backbone.strides)) or 'none'
        raise ConfigError(
            f'{where}{name} gives maps at the strides {strides}, and 4, 8, 16, 32 are needed: take '
            'ViTAdapter or TimmViTAdapter'
        )
    return backbone


def load_named(backbone: Any) -> None:
    """Load the weights that a backbone's arguments name, if they name some.

    Other initial values stay.

    Raises:
        CheckpointError: If they do not fit.
    """
    if backbone.init_cfg:
        backbone.init_weights()

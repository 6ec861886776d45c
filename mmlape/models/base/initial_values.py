"""Initial values: DeiT's of linear maps, and those of MMEngine's initialisers."""

import torch.nn as nn
from torch.nn.init import trunc_normal_

from mmlape.errors import ConfigError


def init_linear(module: nn.Module) -> None:
    """Initialise a linear map as DeiT does; for ``apply``."""
    if isinstance(module, nn.Linear):
        trunc_normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


def initialise(model: nn.Module, init_cfg: dict | list[dict]) -> None:
    """Initialise a model as MMEngine's initialisers do.

    Raises:
        ConfigError: If MMEngine is not installed.
    """
    try:
        from mmengine.model import initialize
    except ImportError as error:
        raise ConfigError(
            f'init_cfg={init_cfg!r} names an initialiser of MMEngine, which does not import '
            f'({error}): install mmengine, or initialise the model by torch.nn.init; '
            "dict(type='Pretrained', checkpoint=FILE) needs none"
        ) from error
    initialize(model, init_cfg)

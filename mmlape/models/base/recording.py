"""What files record of a model: what no key tells, and the complete configuration."""

from typing import Any

from torch import nn

from mmlape.checkpoint.metadata import lasting_arguments
from mmlape.errors import ConfigError
from mmlape.models.names import own_parameters, parameters


def require_registered(backbone: nn.Module) -> None:
    """Check that the constructor of a backbone has registered its arguments.

    Raises:
        ConfigError: If one is missing.
    """
    model_class = type(backbone)
    missing = [name for name in own_parameters(model_class) if name not in backbone.arguments]
    if missing:
        raise ConfigError(
            f'{model_class.__name__}: files cannot record {", ".join(missing)}: its constructor must call '
            'self.register_arguments(locals()) behind super().__init__(...)'
        )


def recorded_config(backbone: nn.Module) -> dict[str, Any]:
    """Return the configuration of a backbone: ``type``, ``arch``, and arguments that are not their defaults.

    Raises:
        ConfigError: If its constructor has not registered its arguments.
    """
    require_registered(backbone)
    model_class = type(backbone)
    defaults = parameters(model_class)
    told = {
        key: value
        for key, value in backbone.arguments.items()
        if key == 'arch' or key not in defaults or value != defaults[key]
    }
    return {'type': f'mmlape.{model_class.__name__}', **lasting_arguments(told)}

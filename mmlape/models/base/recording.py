"""What files record of a model: what no key tells, and the complete configuration."""

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import nn

from mmlape.checkpoint.metadata import lasting_arguments
from mmlape.errors import ConfigError
from mmlape.models.names import own_parameters, parameters


class RecordsModels:
    """Says what files record of a model.

    Attributes:
        assumed_arguments: Arguments that change what a model computes, but no name and no shape of its tensors, with
            the values that a file without a record is taken to mean. A model lists its own values in
            ``recorded_arguments``.
    """

    assumed_arguments: ClassVar[Mapping[str, Any]] = {}

    def record(self, model: nn.Module) -> dict[str, Any]:
        """Return what files record of a model: what no key tells, the PE's grid, and the complete configuration."""
        position, arch = model.position, getattr(model, 'arch', {})
        grid = {'grid': list(model.grid)} if position.absolute or position.inside else {}
        heads = {'num_heads': arch['num_heads']} if arch.get('num_heads') else {}
        config = {'config': recorded_config(model)} if hasattr(model, 'arguments') else {}
        return {**position.options(), **grid, **heads, **model.recorded_arguments, **config}

    def ambiguous_options(self, model: nn.Module) -> dict[str, list[str]]:
        """Return the arguments whose value no key tells, with the values that leave the keys of this model's."""
        attn = model.all_layers[0].attention if model.position.inside else None
        texts = [
            text
            for encoding in (attn.encodings if attn else ())
            for text in encoding.ambiguous_options(attn.state_dict(), encoding.slot.num_prefix)
        ]
        return {**model.position.ambiguous_options(model.norm_places()), 'pe_type': texts}


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

"""What follows from a backbone's arguments: what files record of them, and what ``frozen_stages`` freezes."""

from inspect import Parameter, signature
from typing import Any

from torch import nn

from mmlape.errors import ConfigError

_VARIABLE = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


def parameters(model_class: type) -> dict[str, Any]:
    """Return a class's arguments with their defaults by name; those that it passes on are its base's."""
    arguments: dict[str, Any] = {}
    for base in model_class.__mro__:
        own = own_parameters(base)
        arguments = own | arguments
        if len(own) + 1 == len(signature(base.__init__).parameters):  # without self
            break
    return arguments


def own_parameters(model_class: type) -> dict[str, Any]:
    """Return the arguments that a class's constructor names, with their defaults."""
    parameters = list(signature(model_class.__init__).parameters.values())[1:]
    return {parameter.name: parameter.default for parameter in parameters if parameter.kind not in _VARIABLE}


def changed_arguments(model: nn.Module) -> dict[str, Any]:
    """Return the arguments of a backbone that are not their defaults, and its ``arch``.

    Raises:
        ConfigError: If the constructor has not registered its arguments.
    """
    model_class, defaults = type(model), parameters(type(model))
    missing = [name for name in own_parameters(model_class) if name not in model.arguments]
    if missing:
        raise ConfigError(
            f'{model_class.__name__}: files cannot record {", ".join(missing)}: its constructor must call '
            'self.register_arguments(locals()) behind super().__init__(...)'
        )
    return {
        key: value
        for key, value in model.arguments.items()
        if key == 'arch' or key not in defaults or value != defaults[key]
    }


def freeze(model: nn.Module) -> None:
    """Stop the training of what ``frozen_stages`` of a backbone says.

    Raises:
        ConfigError: If there are not so many layers, or stages.
    """
    most = len(getattr(model, model.layers_name, model.all_layers))
    if model.frozen_stages not in range(-1, most + 1):
        raise ConfigError(f'frozen_stages={model.frozen_stages!r}: choose from -1, for nothing, to {most}, for all')
    if model.frozen_stages < 0:
        return
    for name in (*model.prefix_tokens[: model.num_prefix], *model.pe_names):
        getattr(model, name).requires_grad_(False)
    for module in model.frozen_modules():
        module.requires_grad_(False)

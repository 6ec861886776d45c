"""Learning rate and weight decay of every parameter, decided by rules that compose.

Layer-wise learning rates (BEiT, arXiv 2106.08254): layer k of L trains at ``rate ** (L + 1 - k)`` of the full rate.
The embeddings are layer 0. A layer's PE norm shares its layer's rate; ViT-Adapter's own modules, necks and heads train
at the full rate. The parameters of a position encoding do not decay unless the configuration says so.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from mmengine.optim import DefaultOptimWrapperConstructor
from mmengine.registry import OPTIM_WRAPPER_CONSTRUCTORS as ROOT_CONSTRUCTORS
from mmengine.utils.dl_utils.parrots_wrapper import _BatchNorm, _InstanceNorm
from torch import nn

from mmlape.engine.keys import PARAMWISE_KEYS
from mmlape.errors import ConfigError
from mmlape.models.position import position_parameters
from mmlape.registry import OPTIM_WRAPPER_CONSTRUCTORS

_NORMS = (_BatchNorm, _InstanceNorm, nn.GroupNorm, nn.LayerNorm)


@dataclass(frozen=True)
class Rule:
    """A factor of a learning rate or a weight decay, and what in the configuration sets it."""

    source: str
    factor: float

    def __str__(self) -> str:
        return f'{self.source} x {self.factor:.4g}'


@dataclass(frozen=True)
class Settings:
    """What decides the settings of one parameter."""

    rates: tuple[Rule, ...]  # rules whose product scales the learning rate
    decay: Rule | None  # the rule that scales the weight decay; None if there is none
    options: dict  # further options of the optimiser, such as ``betas``


@OPTIM_WRAPPER_CONSTRUCTORS.register_module(
    name=['ParamwiseOptimWrapperConstructor', 'LayerDecayOptimWrapperConstructor']
)
class ParamwiseOptimWrapperConstructor(DefaultOptimWrapperConstructor):
    """MMEngine's constructor, with rules that do not displace each other.

    ``paramwise_cfg`` has MMEngine's keys. A custom key applies to every parameter whose name contains it, but only to
    what it sets: of the keys with ``lr_mult`` the longest scales the learning rate, of those with ``decay_mult`` the
    longest scales the weight decay. So ``backbone=dict(lr_mult=0.1)`` leaves norms and biases without decay. What no
    key sets, ``norm_decay_mult``, ``bias_decay_mult``, ``bias_lr_mult`` and so on set. ``position_lr_mult`` and
    ``position_decay_mult``, 0 by default, are those of position encodings, whatever the kind: tables, absolute and
    relative, frequencies, convolutions. ``layer_decay_rate``, of mmpretrain's constructor, scales the resulting
    learning rate, also in detectors and segmentors, whose ``backbone`` knows a parameter's depth. Parameters whose
    names begin with one of ``layer_decay_first`` train at the rate of the embeddings, as Mask2Former's queries and
    output layers do in ViT-Adapter's public code.

    A parameter that several modules share is in one group, by the rules for the first of its names.

    Raises:
        ConfigError: ``paramwise_cfg`` has an unknown key. On the call, if it scales a learning rate that ``optimizer``
            does not set, if it has ``layer_decay_rate`` and nothing knows a parameter's depth, or if it has
            ``layer_decay_first`` without that rate or with the beginning of no name.
    """

    def __init__(self, optim_wrapper_cfg: dict, paramwise_cfg: dict | None = None):
        paramwise_cfg = dict(paramwise_cfg or {})
        if (optim_wrapper_cfg.get('optimizer') or {}).get('weight_decay'):
            paramwise_cfg.setdefault('position_decay_mult', 0.0)
        super().__init__(optim_wrapper_cfg, paramwise_cfg)

    def _validate_cfg(self) -> None:
        super()._validate_cfg()
        unknown = [key for key in self.paramwise_cfg if key not in PARAMWISE_KEYS]
        if unknown:
            raise ConfigError(
                f'optim_wrapper.paramwise_cfg has no {", ".join(unknown)}: its keys are {", ".join(PARAMWISE_KEYS)}; '
                'other parameters are reached by custom_keys'
            )

    def add_params(self, params: list[dict], module: nn.Module, **kwargs) -> None:
        """Add the trained parameters of ``module`` to ``params``, one group each."""
        parameters = dict(module.named_parameters())
        for name, settings in self.settings(module).items():
            group = dict(settings.options, params=[parameters[name]])
            if settings.rates:
                if self.base_lr is None:
                    raise ConfigError(f'{settings.rates[0]} needs optim_wrapper.optimizer.lr')
                group['lr'] = self.base_lr * math.prod(rule.factor for rule in settings.rates)
            if settings.decay and self.base_wd is not None:
                group['weight_decay'] = self.base_wd * settings.decay.factor
            params.append(group)

    def settings(self, model: nn.Module) -> dict[str, Settings]:
        """Return what decides the settings of every trained parameter, by its name."""
        depth_of = self._depths(model)
        trained = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
        positions = position_parameters(model)
        return {name: self._settings(model, name, name in positions, depth_of) for name in trained}

    def _depths(self, model: nn.Module) -> Callable[[str], tuple[int, int]] | None:
        first = tuple(self.paramwise_cfg.get('layer_decay_first', ()))
        where = 'optim_wrapper.paramwise_cfg.layer_decay_first'
        if 'layer_decay_rate' not in self.paramwise_cfg:
            if first:
                raise ConfigError(f'{where} needs layer_decay_rate beside it')
            return None
        names = [name for name, _ in model.named_parameters()]
        for start in first:
            if not any(name.startswith(start) for name in names):
                raise ConfigError(f'{where}: no parameter begins with {start!r}; mmlape print-params lists them')
        depth_of = layer_depths(model)
        return lambda name: (0, depth_of(name)[1]) if name.startswith(first) else depth_of(name)

    def _settings(self, model: nn.Module, name: str, is_position: bool, depth_of: Callable | None) -> Settings:
        prefix, _, own_name = name.rpartition('.')
        module = model.get_submodule(prefix)
        custom = self._custom(f'{prefix}.{own_name}')  # MMEngine matches '.cls_token' also where nothing is before it
        is_norm, is_bias = isinstance(module, _NORMS), own_name == 'bias'
        if 'lr_mult' in custom:
            rate = Rule(*custom.pop('lr_mult'))
        else:
            kinds = dict(position=is_position, bias=is_bias and not is_norm)
            rate = self._first_rule('lr_mult', kinds)
        if 'decay_mult' in custom:
            decay = Rule(*custom.pop('decay_mult'))
        else:
            is_depthwise = isinstance(module, nn.Conv2d) and module.in_channels == module.groups
            is_flat = getattr(module, own_name).ndim == 1
            kinds = dict(position=is_position, norm=is_norm, bias=is_bias, dwconv=is_depthwise, flat=is_flat)
            decay = self._first_rule('decay_mult', kinds)
        rates = [rate] if rate else []
        if depth_of is not None:
            depth, depths = depth_of(name)
            factor = self.paramwise_cfg['layer_decay_rate'] ** (depths - 1 - depth)
            rates.append(Rule(f'layer {depth} of {depths - 1}', factor))
        return Settings(tuple(rates), decay, {option: value for option, (_, value) in custom.items()})

    def _custom(self, name: str) -> dict[str, tuple]:
        """Return what the custom keys set for a parameter: by setting, the longest key that has it and the value."""
        keys = self.paramwise_cfg.get('custom_keys', {})
        custom = {}
        for key in sorted(sorted(keys, reverse=True), key=len):  # of two equally long ones the first in the alphabet
            if key in name:
                custom |= {setting: (f"'{key}'", value) for setting, value in keys[key].items()}
        return custom

    def _first_rule(self, setting: str, kinds: dict[str, bool]) -> Rule | None:
        """Return the rule of the first kind that a parameter is of and that the configuration has a factor for."""
        keys = [f'{kind}_{setting}' for kind, applies in kinds.items() if applies]
        return next((Rule(key, self.paramwise_cfg[key]) for key in keys if key in self.paramwise_cfg), None)


def parameter_rules(model: nn.Module, optim_wrapper: dict) -> dict[str, tuple[str, str]]:
    """Return what scales learning rate and weight decay of every trained parameter; none with other constructors."""
    kind = optim_wrapper.get('constructor', 'DefaultOptimWrapperConstructor')
    kind = ROOT_CONSTRUCTORS.get(kind) if isinstance(kind, str) else kind
    if not issubclass(kind, ParamwiseOptimWrapperConstructor):
        return {}
    decided = kind(optim_wrapper, optim_wrapper.get('paramwise_cfg')).settings(model)
    return {name: (', '.join(map(str, part.rates)), str(part.decay or '')) for name, part in decided.items()}


def layer_depths(model: nn.Module) -> Callable[[str], tuple[int, int]]:
    """Return the function from a parameter's name to its depth and the number of depths, or raise ConfigError."""
    if hasattr(model, 'get_layer_depth'):
        return model.get_layer_depth
    backbone = getattr(model, 'backbone', None)
    if not hasattr(backbone, 'get_layer_depth'):
        raise ConfigError(
            f'layer-wise learning rates need a backbone with get_layer_depth, such as mmlape.VisionTransformer; '
            f'{type(model).__name__} has {type(backbone).__name__}'
        )
    depths = backbone.get_layer_depth('', '')[1]

    def depth(name: str) -> tuple[int, int]:
        if name.startswith('backbone.'):
            return backbone.get_layer_depth(name, 'backbone.')
        return depths - 1, depths

    return depth

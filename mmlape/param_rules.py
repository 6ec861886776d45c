"""Learning rate and weight decay of every parameter, decided by rules that compose.

Layer-wise learning rates (BEiT, arXiv 2106.08254): layer k of L trains at ``rate ** (L + 1 - k)``
of the full rate. The embeddings are layer 0. Necks and heads train at the full rate. The parameters
of a position encoding do not decay unless the configuration says so; which they are, callers know.
"""

import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from mmlape.errors import ConfigError

PARAMWISE_KEYS = (
    'custom_keys', 'layer_decay_rate', 'layer_decay_first', 'bias_lr_mult', 'norm_decay_mult', 'bias_decay_mult',
    'dwconv_decay_mult', 'flat_decay_mult', 'position_lr_mult', 'position_decay_mult', 'bypass_duplicate',
)  # fmt: skip
"""Keys of ``paramwise_cfg``; ``mmlape.lab.training.optim`` describes them."""
_NORMS = (_BatchNorm, _InstanceNorm, nn.GroupNorm, nn.LayerNorm)


@dataclass(frozen=True)
class Rule:
    """A factor of a learning rate or a weight decay, and what in the configuration sets it."""

    source: str
    factor: float

    def __str__(self) -> str:
        return f'{self.source} x {self.factor:.4g}'


@dataclass(frozen=True)
class ParamRules:
    """What decides learning rate, weight decay and further options of one parameter."""

    rates: tuple[Rule, ...]  # rules whose product scales the learning rate
    decay: Rule | None  # the rule that scales the weight decay; None if there is none
    options: dict  # further options of the optimiser, such as ``betas``


def require_known(paramwise_cfg: Mapping[str, Any], where: str = '') -> None:
    """Raise ConfigError for keys that nothing reads.

    ``where`` is what stands before 'paramwise_cfg' in messages.
    """
    unknown = [key for key in paramwise_cfg if key not in PARAMWISE_KEYS]
    if unknown:
        raise ConfigError(
            f'{where}paramwise_cfg has no {", ".join(unknown)}: its keys are '
            f'{", ".join(PARAMWISE_KEYS)}; other parameters are reached by custom_keys'
        )


def with_position_decay(paramwise_cfg: Mapping[str, Any], weight_decay: float | None) -> dict[str, Any]:
    """Return the rules with the one that position encodings do not decay, unless they have another."""
    return {'position_decay_mult': 0.0, **paramwise_cfg} if weight_decay else dict(paramwise_cfg)


def groups_of(
    model: nn.Module,
    paramwise_cfg: Mapping[str, Any],
    lr: float | None,
    weight_decay: float | None,
    positions: Collection[str] = (),
) -> list[dict]:
    """Return the trained parameters in groups of equal options, in the order of their first parameters.

    A group has what differs from the optimiser's own options. PyTorch updates the parameters of a
    group together, and compares each group with all before it.

    Raises:
        ConfigError: If a learning rate is scaled and ``lr`` is None, and as ``rules_of`` does.
    """
    parameters, groups = dict(model.named_parameters()), {}
    for name, rules in rules_of(model, paramwise_cfg, positions).items():
        group = dict(rules.options)
        if rules.rates:
            if lr is None:
                raise ConfigError(f'{rules.rates[0]} needs optim_wrapper.optimizer.lr')
            group['lr'] = lr * math.prod(rule.factor for rule in rules.rates)
        if rules.decay and weight_decay is not None:
            group['weight_decay'] = weight_decay * rules.decay.factor
        same = groups.setdefault(repr(sorted(group.items())), dict(group, params=[]))
        same['params'].append(parameters[name])
    return list(groups.values())


def rules_of(
    model: nn.Module, paramwise_cfg: Mapping[str, Any], positions: Collection[str] = ()
) -> dict[str, ParamRules]:
    """Return the rules of every trained parameter, by its name.

    A parameter that several modules share has those of the first of its names.

    Args:
        model: The model.
        paramwise_cfg: The rules, as a config has them.
        positions: The names of the parameters of position encodings.

    Raises:
        ConfigError: If nothing knows a parameter's depth that ``layer_decay_rate`` needs, or if
            ``layer_decay_first`` stands without that rate or with the beginning of no name.
    """
    depth_of = _depths(model, paramwise_cfg)
    trained = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    positions = {_plain_name(name) for name in positions}
    return {name: _rules(model, name, _plain_name(name) in positions, depth_of, paramwise_cfg) for name in trained}


OF_TIMM = ('patch_embed', 'norm_pre', 'cls_token', 'dist_token', 'reg_token', 'mask_token')
"""What a ViT of timm has before its first layer, beside the tables of its PE."""
_PARAMETRIZED = re.compile(r'(?:^|(?<=\.))parametrizations\.([^.]+)\.original\d*$')
_WRAPPED = re.compile(
    r'(?:^|(?<=\.))(?:_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module|base_layer|'
    r'original_module|modules_to_save\.[^.]+)\.'
)


def _plain_name(name: str) -> str:
    """Return a parameter's name without what compilers, sharding, PEFT and parametrizations put into it."""
    return _WRAPPED.sub('', _PARAMETRIZED.sub(r'\1', name))


def layer_depths(model: nn.Module) -> Callable[[str], tuple[int, int]]:
    """Return the function from a parameter's name to its depth and the number of depths.

    The outermost module around a parameter that has ``get_layer_depth``, or is a ViT of timm,
    decides, wherever it is in the model. What is in none comes last.

    Raises:
        ConfigError: If there is none, or if it finds no embeddings, so that all rates would be full.
    """
    names = [name for name, _ in model.named_parameters(remove_duplicate=False)]
    found = {name: depth for name in names if (depth := _depth(model, name)) is not None}
    if not found:
        raise ConfigError(
            'layer-wise learning rates need a backbone with get_layer_depth, such as '
            f'mmlape.VisionTransformer, or a ViT of timm; {type(model).__name__} has none'
        )
    if all(depth for depth, _ in found.values()):
        raise ConfigError(
            f'layer-wise learning rates: no parameter of this {type(model).__name__} is one of the '
            f'embeddings ({names[0]} is not), so its layers are not found: make the groups before '
            'the model is wrapped'
        )
    most = max(depths for _, depths in found.values())
    return lambda name: found.get(name, (most - 1, most))


def _depth(model: nn.Module, name: str) -> tuple[int, int] | None:
    """Return depth and number of depths of a parameter; None if no module knows it."""
    owner: Callable[[str], tuple[int, int]] | None = None
    module, rest = model, []  # the names below the module that decides
    for part in name.split('.'):
        forwards = False
        if isinstance(module, nn.Module):
            owner = owner or _owner(module)
            # as compiled models and PEFT's do, whose own parts are no names of the backbone's
            forwards = _owner(module) is None and hasattr(module, 'get_layer_depth')
        if owner and not forwards:
            rest.append(part)
        module = getattr(module, part)
    return owner(_plain_name('.'.join(rest))) if owner else None


def _owner(module: nn.Module) -> Callable[[str], tuple[int, int]] | None:
    if hasattr(type(module), 'get_layer_depth'):
        return module.get_layer_depth
    if hasattr(type(module), 'group_matcher') and hasattr(module, 'blocks'):  # of timm
        kinds = {kind.__name__ for kind in type(module).__mro__}
        return partial(timm_depth, module) if kinds & {'VisionTransformer', 'Eva'} else None
    return None


def timm_depth(vit: nn.Module, name: str) -> tuple[int, int]:
    """Return the depth of a parameter of timm's ViT for layer-wise learning rates, and the number of depths.

    As timm's ``group_matcher`` has it, the final norm is the last layer's; class token, registers
    and ``norm_pre`` are of the embeddings.
    """
    layers, (part, _, rest) = len(vit.blocks), name.partition('.')
    if part == 'blocks':
        return int(rest.partition('.')[0]) + 1, layers + 2
    if part in OF_TIMM or part.startswith('pos_embed'):
        return 0, layers + 2
    return layers + (part not in ('norm', 'pe_norm')), layers + 2


def _depths(model: nn.Module, paramwise_cfg: Mapping[str, Any]) -> Callable[[str], tuple[int, int]] | None:
    first = tuple(paramwise_cfg.get('layer_decay_first', ()))
    where = 'optim_wrapper.paramwise_cfg.layer_decay_first'
    if 'layer_decay_rate' not in paramwise_cfg:
        if first:
            raise ConfigError(f'{where} needs layer_decay_rate beside it')
        return None
    names = [name for name, _ in model.named_parameters()]
    for start in first:
        if not any(name.startswith(start) for name in names):
            raise ConfigError(f'{where}: no parameter begins with {start!r}; mmlape print-params lists them')
    depth_of = layer_depths(model)

    def depth(name: str) -> tuple[int, int]:
        own_depth, depths = depth_of(name)
        return 0 if name.startswith(first) else own_depth, depths

    return depth


def _rules(
    model: nn.Module,
    name: str,
    is_position: bool,
    depth_of: Callable[[str], tuple[int, int]] | None,
    paramwise_cfg: Mapping[str, Any],
) -> ParamRules:
    prefix, _, own_name = name.rpartition('.')
    module = model.get_submodule(prefix)
    # MMEngine matches '.cls_token' also where nothing is before it
    custom = _custom(f'{prefix}.{own_name}', paramwise_cfg)
    is_norm = isinstance(module, _NORMS)
    is_bias = own_name == 'bias'
    if 'lr_mult' in custom:
        rate = Rule(*custom.pop('lr_mult'))
    else:
        kinds = dict(position=is_position, bias=is_bias and not is_norm)
        rate = _first_rule('lr_mult', kinds, paramwise_cfg)
    if 'decay_mult' in custom:
        decay = Rule(*custom.pop('decay_mult'))
    else:
        is_depthwise = isinstance(module, nn.Conv2d) and module.in_channels == module.groups
        is_flat = getattr(module, own_name).ndim == 1
        kinds = dict(position=is_position, norm=is_norm, bias=is_bias)
        kinds |= dict(dwconv=is_depthwise, flat=is_flat)
        decay = _first_rule('decay_mult', kinds, paramwise_cfg)
    rates = [rate] if rate else []
    if depth_of is not None:
        depth, depths = depth_of(name)
        factor = paramwise_cfg['layer_decay_rate'] ** (depths - 1 - depth)
        rates.append(Rule(f'layer {depth} of {depths - 1}', factor))
    others = {option: value for option, (_, value) in custom.items()}
    return ParamRules(tuple(rates), decay, others)


def _custom(name: str, paramwise_cfg: Mapping[str, Any]) -> dict[str, tuple]:
    """Return what the custom keys set for a parameter.

    By option, it is the longest key that has it, and the value.
    """
    keys = paramwise_cfg.get('custom_keys', {})
    custom = {}
    # of two equally long ones the first in the alphabet
    for key in sorted(sorted(keys, reverse=True), key=len):
        if key in name:
            custom |= {option: (f"'{key}'", value) for option, value in keys[key].items()}
    return custom


def _first_rule(option: str, kinds: dict[str, bool], paramwise_cfg: Mapping[str, Any]) -> Rule | None:
    """Return the rule of the first kind of parameter that applies and has a factor; None if none."""
    for kind, applies in kinds.items():
        key = f'{kind}_{option}'
        if applies and key in paramwise_cfg:
            return Rule(key, paramwise_cfg[key])
    return None

"""The groups of a model's parameters for an optimiser of PyTorch, with no decay of position encodings."""

from collections.abc import Mapping
from typing import Any

from torch import nn

from mmlape.models.position import position_parameters
from mmlape.param_rules import groups_of, require_known, with_position_decay

_NO_DECAY = dict(decay_mult=0.0)
DEFAULTS = dict(norm_decay_mult=0.0, custom_keys=dict(level_embed=_NO_DECAY, norm=_NO_DECAY, bias=_NO_DECAY))
"""Rules of `configs/_base_/schedules/adamw.py`: norms, biases and the adapter's level embedding do
not decay."""


def param_groups(
    model: nn.Module,
    lr: float,
    weight_decay: float,
    layer_decay: float | None = None,
    paramwise_cfg: Mapping[str, Any] | None = None,
) -> list[dict]:
    """Return the groups of a model's trained parameters for an optimiser of PyTorch.

    Parameters of equal options are in one group, so that PyTorch updates them together. They are
    those of ``mmlape.ParamwiseOptimWrapperConstructor`` in an OpenMMLab config.

    Args:
        model: A backbone of this package or a ViT of timm, changed by ``mmlape.add_lape`` or not, or
            any model that holds or wraps one (compiled, averaged, sharded, PEFT's); without
            ``layer_decay``, any model.
        lr: The full learning rate.
        weight_decay: The full weight decay.
        layer_decay: Rate from one layer to the one before it, such as 0.75; None trains all layers
            at ``lr``.
        paramwise_cfg: Rules instead of ``DEFAULTS``, with the constructor's keys.

    Raises:
        ConfigError: For an unknown key, or if ``layer_decay`` finds no backbone or no embeddings.
    """
    cfg = dict(DEFAULTS if paramwise_cfg is None else paramwise_cfg)
    require_known(cfg)
    if layer_decay is not None:
        cfg['layer_decay_rate'] = layer_decay
    positions = position_parameters(model)
    rules = with_position_decay(cfg, weight_decay)
    groups = groups_of(model, rules, lr, weight_decay, positions)
    return [dict(lr=lr, weight_decay=weight_decay) | group for group in groups]

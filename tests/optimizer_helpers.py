"""Learning rates and weight decays that an optimiser gives each parameter, and the rule of layer-wise rates."""

import re

from mmengine.optim import build_optim_wrapper
from torch import nn

RATE, LR = 0.5, 0.1
WRAPPER = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=LR, weight_decay=0.05),
    constructor='mmlape.ParamwiseOptimWrapperConstructor',
    paramwise_cfg=dict(layer_decay_rate=RATE, custom_keys=dict(pe_norm=dict(decay_mult=0.0))),
)


def rates(model: nn.Module, **paramwise) -> dict[str, tuple[float, float]]:
    """(learning rate as a share of the full one, weight decay) of every trained parameter."""
    wrapper = dict(WRAPPER, paramwise_cfg=paramwise) if paramwise else WRAPPER
    groups = build_optim_wrapper(model, wrapper).optimizer.param_groups
    by_id = {id(p): (group['lr'] / LR, group['weight_decay']) for group in groups for p in group['params']}
    assert len(by_id) == sum(len(group['params']) for group in groups)
    return {name: by_id[id(p)] for name, p in model.named_parameters() if p.requires_grad}


def expected(name: str) -> float:
    """Written down from the paper's rule: 4 layers are depths 1 to 4, embeddings 0, all else 5."""
    layer = re.match(r'backbone\.blocks\.(\d+)\.', name)
    if layer:
        return RATE ** (4 - int(layer[1]))
    embedding = re.match(r'backbone\.(patch_embed\.|pos_embed|cls_token|dist_token)', name)
    return RATE**5 if embedding else 1.0

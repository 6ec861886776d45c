"""LaPE in a ViT of timm, in place.

The PE is joined in every layer instead of at the input (LaPE, ICCV 2023). timm adds the table once,
x0 = tokens + w. A changed model runs timm's own methods, but w goes along beside the tokens, and
the attention of layer l sees LN(x) + w_l with w_l = LN_l(w_{l-1}), or what another joining says
(``mmlape.models.position.joining``); a joining that is at the input too leaves timm's sum as it is.
"""

import copy
from collections.abc import Iterable

import torch
from torch import nn

from mmlape.errors import ConfigError
from mmlape.models.position import Joining, joinings
from mmlape.models.timm.joined import TABLE, Joined, JoinedPost, JoinedPre, subclass
from mmlape.models.timm.pretrained import timm_package


def add_lape(model: nn.Module, joining: str = 'lape') -> nn.Module:
    """Join the position embedding of a ViT of timm in every layer, in place.

    The model keeps timm's names, and each layer gets ``blocks.N.pe_norm``, a norm of the type and
    eps of the layer's own norm that starts with scale 1 and shift 0, the paper's start; 'shared'
    has no new parameter, and 'unshared' a table for each layer, ``pos_embed0`` and so on, which
    start as copies of the model's. Tokens without a row of the table (``no_embed_class``) get
    nothing, in any layer. Load pretrained weights before, and build the optimiser and compile
    afterwards.

    Args:
        model: A ``VisionTransformer`` or ``Eva`` of timm with a position embedding; rotary ones
            stay beside it.
        joining: 'lape', 'lape-shared', 'shared', 'unshared', 'pvg', 'mpvg', or another name in
            ``JOININGS`` whose class has ``advance`` and ``combine``. 'pvg' and 'mpvg' take a model
            without class token and registers; 'mpvg' adds ``pe_norm`` beside ``norm``, which must
            come before the pooling (``fc_norm=False``).

    Returns:
        The model.

    Raises:
        ConfigError: For a model without such a table, one that has been changed or compiled before,
            one that the joining is not for, and an unknown joining. The model is then as it was.
        StackError: If timm is missing or too old.
    """
    chosen = _resolve(joining)
    table = _table_of(model)
    _check_tokens(model, chosen)
    changes = [_change_of(block, number) for number, block in enumerate(model.blocks)]
    normed = [chosen.norms_layer(number, staged=False) for number in range(len(model.blocks))]
    norms = [_fresh(block.norm1) if is_normed else None for block, is_normed in zip(model.blocks, normed)]
    last = chosen.at_last_norm and not isinstance(model.norm, nn.Identity)
    # nothing below can fail
    for number, (block, change, norm) in enumerate(zip(model.blocks, changes, norms)):
        block.number, block.joining, block.pe_norm = number, chosen, norm
        block.__class__ = subclass(change, type(block))
    if chosen.table_per_layer:
        model.pos_embed = None
        for number in range(len(model.blocks)):
            copy = nn.Parameter(table.detach().clone(), requires_grad=table.requires_grad)
            model.register_parameter(f'{TABLE}{number}', copy)
    model.joining, model.pe_norm = chosen, _fresh(model.norm) if last else None
    model.__class__ = subclass(Joined, type(model))
    return model


def check_model(model: nn.Module, function: str) -> None:
    """Check that a model is a ViT of timm that can still be changed.

    Raises:
        ConfigError: If it is of another class, or compiled.
    """
    timm_package()
    from timm.models.eva import Eva
    from timm.models.vision_transformer import VisionTransformer

    name = type(model).__name__
    if hasattr(model, '_orig_mod') or getattr(model, '_compiled_call_impl', None) is not None:
        raise ConfigError(f'{function}: the model is compiled; call {function} before torch.compile')
    if not isinstance(model, VisionTransformer | Eva):
        ours = '; mmlape.SwinTransformer has both methods' if name.startswith('Swin') else ''
        raise ConfigError(f"{function} takes timm's VisionTransformer and Eva, not {name}{ours}")


def _resolve(name: str) -> Joining:
    """Return a joining that layers of timm can do.

    They receive the PE, and it gives attention one tensor.
    """
    known = joinings()
    fitting = [other for other, joining in known.items() if joining.travels and type(joining).join is Joining.join]
    if name not in fitting:
        raise ConfigError(f'add_lape: joining={name!r} is none of these: {", ".join(fitting)}')
    return known[name]


def _table_of(model: nn.Module) -> nn.Parameter:
    """Return the table of a model that can be changed."""
    check_model(model, 'add_lape')
    name = type(model).__name__
    if isinstance(model, Joined):
        raise ConfigError(f'add_lape: the model has been changed before, to joining={model.joining.name!r}')
    table = getattr(model, TABLE, None)
    if table is None:
        rotary = ', its PE is rotary only' if getattr(model, 'rope', None) is not None else ''
        raise ConfigError(f'add_lape: this {name} has no position embedding to join: pos_embed is None{rotary}')
    if getattr(model.patch_embed, 'norms_position', False):
        raise ConfigError(
            f'add_lape: patch_norm={model.patch_embed.patch_norm!r} norms tokens + PE, which LaPE '
            'does not add: take another patch_norm'
        )
    return table


def _check_tokens(model: nn.Module, joining: Joining) -> None:
    """Check that a joining for pooled patch tokens finds them, behind a norm where it joins at the last one."""
    name = f'add_lape: joining={joining.name!r}'
    count = model.num_prefix_tokens
    if joining.patches_only and count:
        raise ConfigError(
            f'{name} is for pooled patch tokens, and this model has {count} before them: build it '
            "with class_token=False, global_pool='avg', fc_norm=False and no registers "
            '(mmlape.TimmViT: with_prefix=False)'
        )
    behind = getattr(model, 'fc_norm', None)
    if joining.at_last_norm and behind is not None and not isinstance(behind, nn.Identity):
        raise ConfigError(
            f'{name} joins at the last norm, which comes behind the pooling here: build the model with fc_norm=False'
        )


def _change_of(block: nn.Module, number: int) -> type:
    """Return the change for a layer, by where it has its norms."""
    from timm.models.eva import EvaBlock, EvaBlockPostNorm
    from timm.models.vision_transformer import Block, ResPostBlock

    if isinstance(block, Block | EvaBlock):
        return JoinedPre
    if isinstance(block, ResPostBlock | EvaBlockPostNorm):
        return JoinedPost
    raise ConfigError(
        f'add_lape: layer {number} is a {type(block).__name__}; layers can be Block, ResPostBlock, '
        'EvaBlock and EvaBlockPostNorm, whose one attention comes before their FFN'
    )


def _fresh(norm: nn.Module) -> nn.Module:
    """Return a norm of the same type, eps, precision and device, with scale 1 and shift 0."""
    new = copy.deepcopy(norm)
    hooks: Iterable[dict] = (new._forward_hooks, new._forward_pre_hooks, new._backward_hooks)
    for registered in hooks:
        registered.clear()
    with torch.no_grad():
        for name, values in new.named_parameters():
            values.fill_(float(name == 'weight'))
    return new

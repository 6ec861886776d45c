"""LaPE in a ViT of timm, in place: the PE is joined in every layer instead of at the input (LaPE, ICCV 2023).

timm adds the table once, x0 = tokens + w. A changed model runs timm's own methods, but w goes along beside the tokens,
and the attention of layer l sees LN(x) + w_l with w_l = LN_l(w_{l-1}), or what another joining says
(``mmlape.models.position.joining``). The PE of a forward is in an object of that forward, never in the model: forwards
of several sizes, recomputed activations and copies do not meet.
"""

import copy
from collections.abc import Iterable
from functools import partial

import torch
from torch import Tensor, nn

from mmlape.errors import ConfigError
from mmlape.models.position import Joining, Stream, joinings
from mmlape.models.timm.changed import Changed, StandIn, subclass
from mmlape.models.timm.pretrained import timm_package

TABLE = 'pos_embed'


def add_lape(model: nn.Module, joining: str = 'lape') -> nn.Module:
    """Join the position embedding of a ViT of timm in every layer, in place.

    The model keeps timm's names, and each layer gets ``blocks.N.pe_norm``, a norm of the type and eps of the layer's
    own norm that starts with scale 1 and shift 0, the paper's start; 'shared' has no new parameter, and 'unshared' a
    table for each layer, ``pos_embed0`` and so on, which start as copies of the model's. Tokens without a row of the
    table (``no_embed_class``) get nothing, in any layer. Load pretrained weights before, and build the optimiser and
    compile afterwards.

    Args:
        model: A ``VisionTransformer`` or ``Eva`` of timm with a position embedding; rotary ones stay beside it.
        joining: 'lape', 'lape-shared', 'shared', 'unshared', or another name in ``JOININGS`` whose class has
            ``advance`` and ``combine``.

    Returns:
        The model.

    Raises:
        ConfigError: For a model without such a table, one that has been changed or compiled before, and an unknown
            joining. The model is then as it was.
        StackError: If timm is missing or too old.
    """
    chosen = _resolve(joining)
    table = _table_of(model)
    changes = [_change_of(block, number) for number, block in enumerate(model.blocks)]
    norms = [_fresh(block.norm1) if chosen.with_norm else None for block in model.blocks]
    # nothing below can fail
    for number, (block, change, norm) in enumerate(zip(model.blocks, changes, norms)):
        block.number, block.joining, block.pe_norm = number, chosen, norm
        block.__class__ = subclass(change, type(block))
    if chosen.table_per_layer:
        model.pos_embed = None
        for number in range(len(model.blocks)):
            own = nn.Parameter(table.detach().clone(), requires_grad=table.requires_grad)
            model.register_parameter(f'{TABLE}{number}', own)
    model.joining = chosen
    model.__class__ = subclass(Joined, type(model))
    return model


def table_names(model: nn.Module) -> list[str]:
    """Return the names of a model's tables of the absolute PE; none if it has no such PE."""
    joining = getattr(model, 'joining', None)
    if joining is not None and joining.table_per_layer:
        return [f'{TABLE}{number}' for number in range(len(model.blocks))]
    return [] if getattr(model, TABLE, None) is None else [TABLE]


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


class JoinedForward(StandIn):
    """One forward of a changed model: timm's methods find here the PE, and layers that join it.

    Attributes:
        pos_embed: Zeros of the table's shape, which timm adds to the tokens.
        stream: The PE as each layer receives it, by the layer's number.
        kept: Indices (B, K, 1) of the tokens that patch dropout has kept; None if all are.
        count: Tokens before the dropout.
    """

    def __init__(self, model: nn.Module):
        super().__init__(model)
        table = getattr(model, table_names(model)[0])
        self.pos_embed = table.new_zeros(()).expand(table.shape)
        self.stream: dict[int, Stream] = {}
        self.kept: Tensor | None = None
        self.count = 0

    def _pos_embed(self, x: Tensor):
        """Return what timm's method returns, without the PE in the tokens (B, N, D); x is (B, rows, columns, D)."""
        model = self.module
        tables = [getattr(model, name) for name in table_names(model)]
        if model.dynamic_img_size:
            from timm.layers import resample_abs_pos_embed

            prefix = 0 if model.no_embed_class else model.num_prefix_tokens
            src, dst = model.patch_embed.grid_size, x.shape[1:3]
            tables = [
                resample_abs_pos_embed(table, new_size=dst, old_size=src, num_prefix_tokens=prefix) for table in tables
            ]
        self.stream[0] = tuple(tables) if model.joining.table_per_layer else tables[0]
        return model.plain._pos_embed(self, x)

    @property
    def patch_drop(self):
        """The model's patch dropout, which notes here what it keeps; None or the identity without one."""
        drop = self.module.patch_drop
        return drop if drop is None or isinstance(drop, nn.Identity) else self._drop

    def _drop(self, x: Tensor):
        """Return what patch dropout returns of tokens (B, N, D)."""
        every = torch.arange(x.shape[1], device=x.device).expand(len(x), -1)[..., None]  # (B, N, 1)
        out = self.module.patch_drop(every)
        kept, *rest = out if isinstance(out, tuple) else (out,)  # Eva's also returns indices of patches
        if kept.shape[1] < x.shape[1]:
            self.kept, self.count = kept, x.shape[1]
            x = x.gather(1, kept.expand(-1, -1, x.shape[2]))
        return (x, *rest) if rest else x

    def rows(self, own: Tensor | None) -> Tensor | None:
        """Return the rows of a layer's PE (1, R, D) that the kept tokens have, (1 or B, R', D)."""
        if own is None or self.kept is None:
            return own
        missing = self.count - own.shape[1]
        return own[0, self.kept[:, missing:, 0] - missing]

    @property
    def blocks(self) -> '_Layers':
        """The layers, each with this forward."""
        return _Layers(partial(block, run=self) for block in self.module.blocks)


class _Layers(tuple):
    """Layers that can be called one after the other, as ``nn.Sequential``."""

    def __call__(self, x: Tensor) -> Tensor:
        for layer in self:
            x = layer(x)
        return x


class Joined(Changed):
    """A ViT of timm whose layers join the PE.

    Attributes:
        joining: How they do.
    """

    joining: Joining

    def forward_features(self, *args, **kwargs):
        """Run timm's method with the PE joined in every layer."""
        return self.plain.forward_features(JoinedForward(self), *args, **kwargs)

    def forward_intermediates(self, *args, **kwargs):
        """Run timm's method with the PE joined in every layer."""
        return self.plain.forward_intermediates(JoinedForward(self), *args, **kwargs)

    def no_weight_decay(self) -> set[str]:
        """Return timm's names, and the tables'."""
        return {*super().no_weight_decay(), *table_names(self)}

    def set_input_size(self, *args, **kwargs) -> None:
        """Change the size as timm does, of every table."""
        tables = [name for name in table_names(self) if name != TABLE]
        src = self.patch_embed.grid_size
        super().set_input_size(*args, **kwargs)
        from timm.layers import resample_abs_pos_embed

        prefix = 0 if self.no_embed_class else self.num_prefix_tokens
        for name in tables:
            table = getattr(self, name)
            size = dict(new_size=self.patch_embed.grid_size, old_size=src, num_prefix_tokens=prefix)
            setattr(self, name, nn.Parameter(resample_abs_pos_embed(table, **size), table.requires_grad))

    def prune_intermediate_layers(self, *args, **kwargs):
        """Leave out layers as timm does, and their tables."""
        taken = super().prune_intermediate_layers(*args, **kwargs)
        self.drop_tables()
        return taken

    def drop_tables(self) -> None:
        """Leave out the tables of layers that are no longer there."""
        number = len(self.blocks)
        while f'{TABLE}{number}' in self._parameters:
            delattr(self, f'{TABLE}{number}')
            number += 1


class JoinedPre(Changed):
    """A layer of timm with a norm before attention: attention sees norm1(x) + w_l.

    Attributes:
        number: Its index in the model.
        joining: How it joins the PE.
        pe_norm: Its norm of the PE; None for a joining without one.
    """

    number: int
    joining: Joining
    pe_norm: nn.Module | None

    def forward(self, x: Tensor, *args, run: JoinedForward | None = None, **kwargs) -> Tensor:
        """Run timm's layer on tokens (B, N, D) in one forward of the model.

        Raises:
            ConfigError: If it is called by itself, where the PE would be lost.
        """
        if run is None:
            raise ConfigError(
                f'layer {self.number} joins the position embedding, which the model passes on: call the model, its '
                'forward_features or its forward_intermediates instead of the layer'
            )
        own, run.stream[self.number + 1] = self.joining.advance(run.stream[self.number], self.pe_norm)
        return self.run(x, run.rows(own), *args, **kwargs)

    def run(self, x: Tensor, own: Tensor | None, *args, **kwargs) -> Tensor:
        """Run timm's layer on tokens (B, N, D) with the PE that it joins."""
        x, seen = self.joining.combine(x, own, self.norm1)
        return self.plain.forward(_NormedBefore(self, seen), x, *args, **kwargs)


class JoinedPost(JoinedPre):
    """A layer of timm without a norm before attention: attention sees x + w_l."""

    def run(self, x: Tensor, own: Tensor | None, *args, **kwargs) -> Tensor:
        """Run timm's layer on tokens (B, N, D) with the PE that it joins."""
        x, seen = self.joining.combine(x, own, nn.Identity())
        return self.plain.forward(_Attending(self, seen), x, *args, **kwargs)


class _NormedBefore(StandIn):
    """A layer whose norm before attention has been applied."""

    def __init__(self, layer: nn.Module, seen: Tensor):
        super().__init__(layer)
        self.seen = seen

    def norm1(self, x: Tensor) -> Tensor:
        return self.seen


class _Attending(_NormedBefore):
    """A layer whose attention reads other tokens than the residual stream."""

    def norm1(self, x: Tensor) -> Tensor:
        return self.module.norm1(x)

    def attn(self, x: Tensor, **kwargs) -> Tensor:
        return self.module.attn(self.seen, **kwargs)


def _resolve(name: str) -> Joining:
    """Return a joining that layers of timm can do: it leaves the input as it is, and gives attention one tensor."""
    known = joinings()
    fitting = [other for other, one in known.items() if not one.at_input and type(one).join is Joining.join]
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
            f'add_lape: patch_norm={model.patch_embed.patch_norm!r} norms tokens + PE, which LaPE does not add: '
            'take another patch_norm'
        )
    return table


def _change_of(block: nn.Module, number: int) -> type:
    """Return the change for a layer, by where it has its norms."""
    from timm.models.eva import EvaBlock, EvaBlockPostNorm
    from timm.models.vision_transformer import Block, ResPostBlock

    if isinstance(block, Block | EvaBlock):
        return JoinedPre
    if isinstance(block, ResPostBlock | EvaBlockPostNorm):
        return JoinedPost
    raise ConfigError(
        f'add_lape: layer {number} is a {type(block).__name__}, whose attention has no input of its own: layers can '
        'be Block, ResPostBlock, EvaBlock and EvaBlockPostNorm'
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

"""What a ViT of timm and its layers become when the PE is joined in every layer.

Modules of timm that are changed in place get a subclass of their own class (``Subclassed``), and keep
their parameters. timm's own methods run, on proxies for one forward (``Proxy``). The PE of a forward is in an object
of that forward, never in the model: forwards of several sizes, recomputed activations and copies do
not meet.
"""

from functools import cache, partial

import torch
from torch import Tensor, nn

from mmlape.errors import ConfigError
from mmlape.models.position import Joining, Stream

TABLE = 'pos_embed'


def table_names(model: nn.Module) -> list[str]:
    """Return the names of a model's tables of the absolute PE; none if it has no such PE."""
    joining = getattr(model, 'joining', None)
    if joining is not None and joining.table_per_layer:
        return [f'{TABLE}{number}' for number in range(len(model.blocks))]
    return [] if getattr(model, TABLE, None) is None else [TABLE]


class Subclassed:
    """What such a subclass derives from first.

    Copies, pickles and averages of weights are of the subclass too.
    """

    plain: type  # the module's own class, whose methods still do the work
    change: type  # the class that was put before it

    def __reduce__(self):
        """Name the two classes instead of the subclass, which no module has under its name."""
        return _empty, (self.change, self.plain), self.__dict__


class Proxy:
    """A module for the time of one forward: timm's methods get it as ``self``.

    What it lacks is the module's own.
    """

    def __init__(self, module: nn.Module):
        self.module = module

    def __getattr__(self, name: str):
        return getattr(self.module, name)


@cache
def subclass(change: type, plain: type) -> type:
    """Return the class that has the methods of ``change`` before those of ``plain``."""
    attributes = {'plain': plain, 'change': change, '__module__': plain.__module__, '__doc__': change.__doc__}
    return type(f'{change.__name__}{plain.__name__}', (change, plain), attributes)


def _empty(change: type, plain: type) -> nn.Module:
    changed_class = subclass(change, plain)
    return object.__new__(changed_class)


class JoinedForward(Proxy):
    """One forward of a changed model: timm's methods find here the PE, and layers that join it.

    Attributes:
        pos_embed: What timm adds to the tokens: the table if the joining is at the input, else
            zeros of its shape.
        stream: The PE as each layer receives it, by the layer's number.
        kept: Indices (B, K, 1) of the tokens that patch dropout has kept; None if all are.
        count: Tokens before the dropout.
        with_gradients: Whether the forward began with gradients.
    """

    def __init__(self, model: nn.Module):
        super().__init__(model)
        table = getattr(model, table_names(model)[0])
        self.pos_embed = table if model.joining.at_input else table.new_zeros(()).expand(table.shape)
        self.stream: dict[int, Stream] = {}
        self.kept: Tensor | None = None
        self.count = 0
        self.with_gradients = torch.is_grad_enabled()

    def _pos_embed(self, x: Tensor):
        """Return what timm's method returns, without the PE in the tokens (B, N, D).

        ``x`` is (B, rows, columns, D).
        """
        model = self.module
        tables = [self._read(getattr(model, name), x) for name in table_names(model)]
        self.stream[0] = tuple(tables) if model.joining.table_per_layer else tables[0]
        return model.plain._pos_embed(self, x)

    def _read(self, table: Tensor, x: Tensor) -> Tensor:
        """Return a table as the tokens of patches (B, rows, columns, D) get it."""
        model = self.module
        prefix = 0 if model.no_embed_class else model.num_prefix_tokens
        src = tuple(model.patch_embed.grid_size)
        dst = tuple(x.shape[1:3]) if model.dynamic_img_size else src
        if not model.dynamic_img_size:
            return table
        from timm.layers import resample_abs_pos_embed

        return resample_abs_pos_embed(table, dst, src, num_prefix_tokens=prefix)

    @property
    def patch_drop(self):
        """The model's patch dropout, which notes here what it keeps.

        None or the identity without one.
        """
        drop = self.module.patch_drop
        return drop if drop is None or isinstance(drop, nn.Identity) else self._drop

    def _drop(self, x: Tensor):
        """Return what patch dropout returns of tokens (B, N, D)."""
        every = torch.arange(x.shape[1], device=x.device).expand(x.shape[0], -1)[..., None]  # (B, N, 1)
        out = self.module.patch_drop(every)
        # Eva's also returns indices of patches
        kept, *rest = out if isinstance(out, tuple) else (out,)
        if kept.shape[1] < x.shape[1]:
            self.kept, self.count = kept, x.shape[1]
            x = x.gather(1, kept.expand(-1, -1, x.shape[2]))
        return (x, *rest) if rest else x

    def rows(self, pe: Tensor | None) -> Tensor | None:
        """Return the rows of a layer's PE (1 or B, R, D) that the kept tokens have, (1 or B, R', D)."""
        if pe is None or self.kept is None:
            return pe
        missing = self.count - pe.shape[1]
        kept = self.kept[:, missing:] - missing  # (B, R', 1)
        if pe.shape[0] == 1:
            return pe[0, kept[..., 0]]
        return pe.gather(1, kept.expand(-1, -1, pe.shape[2]))

    def norm(self, x: Tensor) -> Tensor:
        """Return the tokens (B, N, D) behind the model's last norm."""
        model = self.module
        if model.pe_norm is None:
            return model.norm(x)
        return model.joining.finish(x, self.rows(self.stream[0]), model.norm, model.pe_norm)

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


class Joined(Subclassed):
    """A ViT of timm whose layers join the PE."""

    joining: Joining  # how they do
    pe_norm: nn.Module | None  # the last norm's norm of the PE; None for a joining without one

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


class JoinedPre(Subclassed):
    """A layer of timm with a norm before attention: attention sees norm1(x) + w_l."""

    number: int  # its index in the model
    joining: Joining  # how it joins the PE
    pe_norm: nn.Module | None  # its norm of the PE; None for a joining without one

    def forward(self, x: Tensor, *args, run: JoinedForward | None = None, **kwargs) -> Tensor:
        """Run timm's layer on tokens (B, N, D) in one forward of the model.

        Raises:
            ConfigError: If it is called by itself, where the PE would be lost, or under reentrant
                recomputation, where the gradients of the PE would be.
        """
        if run is None:
            raise ConfigError(
                f'layer {self.number} joins the position embedding, which the model passes on: call '
                'the model, its forward_features or its forward_intermediates instead of the layer'
            )
        pe = run.stream[self.number]
        joined, passed = self.joining.advance(pe, self.pe_norm)
        if run.with_gradients and not torch.is_grad_enabled():
            self._check_kept(pe, passed)
        run.stream[self.number + 1] = passed
        return self.run(x, run.rows(joined), *args, **kwargs)

    def _check_kept(self, pe: Stream, passed: Stream) -> None:
        """Refuse to pass a PE on without its gradients.

        Reentrant recomputation connects the tokens only.
        """
        trained = [*_tensors(pe), *([] if self.pe_norm is None else self.pe_norm.parameters())]
        made_here = {*map(id, _tensors(passed))} - {*map(id, _tensors(pe))}
        if made_here and any(value.requires_grad for value in trained):
            raise ConfigError(
                f'layer {self.number} runs without gradients in a forward that began with them, as '
                'reentrant recomputation does, and the position embedding would lose its '
                'gradients: call timm.layers.set_reentrant_ckpt(False), or wrap layers with '
                'CheckpointImpl.NO_REENTRANT'
            )

    def run(self, x: Tensor, pe: Tensor | None, *args, **kwargs) -> Tensor:
        """Run timm's layer on tokens (B, N, D) with the PE that it joins."""
        x, seen = self.joining.combine(x, pe, self.norm1)
        return self.plain.forward(_NormedBefore(self, seen), x, *args, **kwargs)


class JoinedPost(JoinedPre):
    """A layer of timm without a norm before attention: attention sees x + w_l."""

    def run(self, x: Tensor, pe: Tensor | None, *args, **kwargs) -> Tensor:
        """Run timm's layer on tokens (B, N, D) with the PE that it joins."""
        x, seen = self.joining.combine(x, pe, nn.Identity())
        return self.plain.forward(_Attending(self, seen), x, *args, **kwargs)


def _tensors(pe: Stream) -> tuple[Tensor, ...]:
    return (pe,) if isinstance(pe, Tensor) else pe or ()


class _NormedBefore(Proxy):
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

"""Where the position embedding meets the tokens (LaPE, ICCV 2023, section 3 and Tables 7 and 8).

With tokens x and PE w, layer l sees

    default       LN(x)                    x0 = patches + w
    shared        LN(x), x <- x + w        before every layer
    unshared      LN(x), x <- x + w_l      one table a layer
    lape-shared   LN(x) + LN_l(w)          x0 = patches
    lape          LN(x) + w_l              w_l = LN_l(w_{l-1}), w_{-1} = w, x0 = patches

Only attention sees the joined input. To add a joining method, write one class here and put it into ``JOININGS``.
"""

from collections.abc import Iterable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from mmcv.cnn import build_norm_layer
from torch import Tensor, nn

from mmlape.errors import ConfigError
from mmlape.models.position.kinds import ABSOLUTE_PE, PE_TYPES


class FoldedPE(NamedTuple):
    """The normed PE of every layer that is left, computed beforehand."""

    left: tuple[Tensor, ...]


Stream = Tensor | tuple[Tensor, ...] | FoldedPE | None
"""What travels along the layers beside the tokens: the PE as the next layer receives it."""


class Joining:
    """PE enters the residual stream once, at the input; without a PE, nothing is joined at all."""

    pe_types: tuple[str, ...] = PE_TYPES
    table_per_layer = False
    with_norm = False

    def enter(self, x: Tensor, pe: Stream) -> Tensor:
        """The tokens (B, N, D) that the first layer receives."""
        return x if pe is None else x + pe

    def join(self, x: Tensor, pe: Stream, norm: nn.Module, pe_norm: nn.Module | None) -> tuple[Tensor, Tensor, Stream]:
        """One layer's join.

        Returns:
            The residual stream (B, N, D), attention's input (B, N, D), and the PE for the next layer.
        """
        return x, norm(x), pe

    def fold(self, pe: Stream, pe_norms: Iterable[nn.Module]) -> Stream:
        """The same stream with everything done that does not depend on the tokens."""
        return pe


class SharedJoining(Joining):
    """The one PE is added to the residual stream before every layer."""

    pe_types = ABSOLUTE_PE

    def enter(self, x, pe):
        return x

    def join(self, x, pe, norm, pe_norm):
        x = x + pe
        return x, norm(x), pe


class UnsharedJoining(SharedJoining):
    """Every layer adds a learnable PE of its own to the residual stream; the stream is the tuple of those left."""

    pe_types = ('learnable',)
    table_per_layer = True

    def join(self, x, pe, norm, pe_norm):
        x = x + pe[0]
        return x, norm(x), pe[1:]


class LaPESharedJoining(Joining):
    """Attention's input gets the one PE through a norm of the layer's own."""

    pe_types = ABSOLUTE_PE
    with_norm = True

    def enter(self, x, pe):
        return x

    def advance(self, pe: Tensor, pe_norm: nn.Module) -> tuple[Tensor, Tensor]:
        """What a layer adds to attention's input, and the PE for the next layer."""
        return pe_norm(pe), pe

    def fold(self, pe, pe_norms):
        added = []
        for pe_norm in pe_norms:
            layer, pe = self.advance(pe, pe_norm)
            added.append(layer)
        return FoldedPE(tuple(added))

    def join(self, x, pe, norm, pe_norm):
        if isinstance(pe, FoldedPE):
            added, pe = pe.left[0], FoldedPE(pe.left[1:])
        else:
            added, pe = self.advance(pe, pe_norm)
        return x, norm(x) + added, pe


class LaPEJoining(LaPESharedJoining):
    """Attention's input gets the PE that the previous layer passed on, through a norm of the layer's own.

    With ``pe_type='rpe'`` there is no table to pass on: the relative bias goes through a norm in each layer.
    """

    pe_types = (*ABSOLUTE_PE, 'rpe')

    def advance(self, pe, pe_norm):
        pe = pe_norm(pe)
        return pe, pe

    def join(self, x, pe, norm, pe_norm):
        return (x, norm(x), pe) if pe is None else super().join(x, pe, norm, pe_norm)


JOININGS: dict[str, Joining] = {
    'default': Joining(),
    'shared': SharedJoining(),
    'unshared': UnsharedJoining(),
    'lape-shared': LaPESharedJoining(),
    'lape': LaPEJoining(),
}


class PENorm(nn.Module):
    """One decomposition of LayerNorm for a PE (LaPE, Table 8).

    Args:
        dims: channels D of the PE (N, D).
        standardise: subtract the mean and divide by the standard deviation over the channels.
        scale: parameter that multiplies: '' (none), 'scalar' (one) or 'channel' (D).
        shift: whether a parameter per channel is added.
    """

    def __init__(self, dims: int, standardise: bool, scale: str, shift: bool, eps: float):
        super().__init__()
        self.dims, self.standardise, self.eps = dims, standardise, eps
        self.weight = nn.Parameter(torch.ones(dims if scale == 'channel' else 1)) if scale else None
        self.bias = nn.Parameter(torch.zeros(dims)) if shift else None

    def forward(self, pe: Tensor) -> Tensor:
        if self.standardise:
            pe = F.layer_norm(pe, (self.dims,), eps=self.eps)
        if self.weight is not None:
            pe = pe * self.weight
        return pe if self.bias is None else pe + self.bias


# name: (standardise, scale, shift); the formula stands in the error message
_NORM_PARTS = {
    'identity': (False, '', False),
    'scalar': (False, 'scalar', False),
    'channel': (False, 'channel', False),
    'affine': (False, 'channel', True),
    'norm': (True, '', False),
    'scalar-norm': (True, 'scalar', False),
    'channel-norm': (True, 'channel', False),
}
PE_NORMS = {
    'identity': 'w',
    'scalar': 'scalar*w',
    'channel': 'channel*w',
    'affine': 'channel*w+bias',
    'norm': 'Norm(w)',
    'scalar-norm': 'scalar*Norm(w)',
    'channel-norm': 'channel*Norm(w)',
    'layernorm': 'channel*Norm(w)+bias',
}


def build_pe_norm(pe_norm: str, dims: int, norm_cfg: dict) -> nn.Module:
    """The module that a layer keeps as ``pe_norm``: ``norm_cfg`` itself for 'layernorm', else its decomposition."""
    if pe_norm == 'layernorm':
        return build_norm_layer(norm_cfg, dims)[1]
    return PENorm(dims, *_NORM_PARTS[pe_norm], eps=norm_cfg.get('eps', 1e-5))


def resolve_joining(pe_type: str, pe_joining: str, pe_norm: str) -> Joining:
    """Look a joining up, or say by name what cannot be combined.

    Raises:
        ConfigError: for an unknown PE type, joining or norm, or for a combination that has no meaning.
    """
    for key, value, choices in (
        ('pe_type', pe_type, PE_TYPES),
        ('pe_joining', pe_joining, tuple(JOININGS)),
        ('pe_norm', pe_norm, tuple(PE_NORMS)),
    ):
        if value not in choices:
            raise ConfigError(f'unknown {key}={value!r}; choose one of: {", ".join(choices)}')
    joining = JOININGS[pe_joining]
    if pe_type not in joining.pe_types:
        fitting = [name for name, other in JOININGS.items() if pe_type in other.pe_types]
        raise ConfigError(
            f'pe_joining={pe_joining!r} cannot join pe_type={pe_type!r}: it joins {", ".join(joining.pe_types)}; '
            f'for pe_type={pe_type!r} choose pe_joining from: {", ".join(fitting)}'
        )
    if pe_norm != 'layernorm' and not (joining.with_norm and pe_type in ABSOLUTE_PE):
        normed = [name for name, other in JOININGS.items() if other.with_norm]
        raise ConfigError(
            f'pe_norm={pe_norm!r} would have no effect with pe_type={pe_type!r} and pe_joining={pe_joining!r}: only '
            f'{" and ".join(normed)} norm an absolute PE; leave pe_norm at its default, layernorm'
        )
    return joining

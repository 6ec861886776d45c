"""Where a transformer layer has its LayerNorms (Dual PatchNorm, TMLR 2023, section 5.2).

With a branch f, which is attention or the FFN:

            on='sum'           on='branch'
    pre     x + f(LN x)
    post    LN(x + f(x))       x + LN(f(x))
    both    LN(x + f(LN x))    x + LN(f(LN x))

NormFormer (arXiv 2110.09456) and Sub-LN (arXiv 2210.06423) also norm what the last linear map of a
branch reads.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

import torch
from torch import Tensor, nn

from mmlape.errors import ConfigError


@dataclass(frozen=True)
class BranchNorms:
    """Where one branch has norms."""

    before: bool = True  # on its input
    # on what its last linear map reads: attention's heads side by side, the FFN's hidden units
    inside: bool = False
    branch: bool = False  # on its output
    sum: bool = False  # on the sum of the tokens and its output


@dataclass(frozen=True)
class NormPlacement:
    """Where both branches of a layer have norms, and what a method has beside them."""

    attn: BranchNorms = BranchNorms()  # of attention
    ffn: BranchNorms = BranchNorms()  # of the FFN
    head_scale: bool = False  # whether a trainable scale multiplies each head's output
    # whether a trainable scale for each channel multiplies the tokens that the FFN is added to
    residual_scale: bool = False
    # whether the initial weights of values, attention's output and the FFN are multiplied by
    # sqrt(ln 2N) in a model of N layers
    scaled_init: bool = field(default=False, compare=False)

    def scaled(self, layers: Sequence[nn.Module]) -> list[Tensor]:
        """Return the weights of a model's layers whose initial values the method scales."""
        scaled = []
        for layer in layers if self.scaled_init else ():
            values = layer.attn.qkv.weight.data.chunk(3)[2]
            scaled += [values, layer.attn.proj.weight.data]
            scaled += [layer.mlp.fc1.weight.data, layer.mlp.fc2.weight.data]
        return scaled

    def scale_initial(self, layers: Sequence[nn.Module], before: Sequence[Tensor] = ()) -> None:
        """Multiply the initial weights of all layers of a model if the method says so.

        Args:
            layers: The model's layers.
            before: Earlier values of these weights, already scaled: weights that still have them
                stay as they are.
        """
        for weight, earlier in zip_longest(self.scaled(layers), before):
            if earlier is None or not torch.equal(weight, earlier):
                weight.mul_(math.sqrt(math.log(2 * len(layers))))


PRE = NormPlacement()
PLACES = ('pre', 'post', 'both')
ON = ('sum', 'branch')


def _branch(place: str, on: str) -> BranchNorms:
    if place not in PLACES or on not in ON:
        raise ConfigError(f'attn and ffn are one of {", ".join(PLACES)}, and on is sum or branch')
    return BranchNorms(place != 'post', **{on: place != 'pre'})


def _pair(attn: str = 'pre', ffn: str = 'pre', on: str = 'sum') -> NormPlacement:
    return NormPlacement(_branch(attn, on), _branch(ffn, on))


def _normformer(head_scale: bool = False, residual_scale: bool = False) -> NormPlacement:
    attn, ffn = BranchNorms(branch=True), BranchNorms(inside=True)
    return NormPlacement(attn, ffn, head_scale, residual_scale)


def _sub_ln() -> NormPlacement:
    return NormPlacement(BranchNorms(inside=True), BranchNorms(inside=True), scaled_init=True)


METHODS = {'normformer': _normformer, 'sub-ln': _sub_ln}


def resolve_norm_placement(placement: str | dict) -> NormPlacement:
    """Look a placement up.

    Args:
        placement: 'pre', 'post' or 'both', for both branches and on the sum; 'normformer' or 'sub-ln';
            or a dict: ``dict(attn='post', ffn='pre', on='branch')``, ``dict(type='normformer',
            head_scale=True)``.

    Raises:
        ConfigError: If there is no such placement; the message has those that there are.
    """
    options = dict(placement) if isinstance(placement, dict) else dict(type=placement)
    method = options.pop('type', None)
    try:
        if method in PLACES:
            return _pair(method, method, **options)
        return (_pair if method is None else METHODS[method])(**options)
    except (ConfigError, KeyError, TypeError) as error:
        raise ConfigError(
            f'norm_placement={placement!r} does not exist; choose one of: '
            f'{", ".join((*PLACES, *METHODS))}, dict(attn=A, ffn=F, on=O) with A and F one of '
            f'{", ".join(PLACES)} and O one of {", ".join(ON)}, '
            "dict(type='normformer', head_scale=True, residual_scale=True)"
        ) from error


class GroupScale(nn.Module):
    """A trainable scale for each of some groups of neighbouring channels: for each head, or for each channel."""

    def __init__(self, groups: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(groups))

    def forward(self, x: Tensor) -> Tensor:
        """Scale tokens (B, N, D)."""
        groups = x.unflatten(-1, (len(self.weight), -1))  # (B, N, groups, D / groups)
        return (groups * self.weight[:, None]).flatten(-2)

"""Where the position embedding meets the tokens (LaPE, ICCV 2023, section 3 and Table 7; PVG and MPVG, AAAI 2025).

With tokens x and PE w, the attention of layer l sees

    default       LN(x)                    x0 = patches + w
    shared        LN(x), x <- x + w        before every layer
    unshared      LN(x), x <- x + w_l      one table a layer
    lape          LN(x) + w_l              w_l = LN_l(w_{l-1}), w_{-1} = w, x0 = patches
    lape-shared   LN(x) + LN_l(w)          x0 = patches
    pvg           LN(x), LN(x) + w_l       w_l = LN_l(w_{l-1}) from the second layer on, w_0 = w, x0 = patches + w
    mpvg          as pvg                   the norm behind the last of L layers returns LN(x) + LN_L(w)

'pvg' and 'mpvg' (AAAI 2025, arXiv 2502.02919) are for models without a class token, whose patch tokens are pooled. In
a model of stages their first layer joins the PE too, and w of the last norm is the PE that the last stage received.

Only attention sees the joined input; LN_l is LayerNorm, or a part of it (``PE_NORMS``, Table 8). A PE may have fewer
rows than there are tokens: the first tokens then get nothing, in any layer. A new joining is one class in one file,
registered in ``JOININGS`` under the name that ``pe_joining`` takes.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmlape.kinds import JOININGS
from mmlape.models.named_layers import build_norm
from mmlape.models.position.base import AbsolutePosition

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
"""The formulas of Table 8 by name."""


def same_parameters(pe_norm: str) -> list[str]:
    """Return the norms whose parameters have the same names and shapes, itself among them."""
    return [name for name in PE_NORMS if _parameters(name) == _parameters(pe_norm)]


def _parameters(pe_norm: str) -> tuple[str | bool, bool]:
    formula = PE_NORMS[pe_norm]
    return '*' in formula and formula.split('*')[0], 'bias' in formula


class PENorm(nn.Module):
    """A part of LayerNorm for a PE (N, D), as a value of ``PE_NORMS`` says.

    ``Norm`` subtracts the mean over the channels and divides by the standard deviation, ``scalar`` is one parameter,
    ``channel`` and ``bias`` are D.
    """

    def __init__(self, dims: int, formula: str, eps: float):
        super().__init__()
        self.dims, self.eps = dims, eps
        self.standardise = 'Norm' in formula
        self.weight = nn.Parameter(torch.ones(dims if 'channel' in formula else 1)) if '*' in formula else None
        self.bias = nn.Parameter(torch.zeros(dims)) if 'bias' in formula else None

    def forward(self, pe: Tensor) -> Tensor:
        """Norm a PE (1, N, D)."""
        if self.standardise:
            pe = F.layer_norm(pe, (self.dims,), eps=self.eps)
        if self.weight is not None:
            pe = pe * self.weight
        return pe if self.bias is None else pe + self.bias


def build_pe_norm(pe_norm: str, dims: int, norm_cfg: dict) -> nn.Module:
    """Build the module that a layer keeps as ``pe_norm``: ``norm_cfg`` itself for 'layernorm', else a part of it."""
    if pe_norm == 'layernorm':
        return build_norm(norm_cfg, dims)
    return PENorm(dims, PE_NORMS[pe_norm], norm_cfg.get('eps', 1e-5))


Stream = Tensor | tuple[Tensor, ...] | None
"""What travels along the layers beside the tokens: the PE as the next layer receives it."""


@torch.fx.wrap
def add_rows(x: Tensor, pe: Tensor) -> Tensor:
    """Add a PE (1 or B, R, D) to the last R of the tokens (B, N, D); those before have no row, and get nothing."""
    missing = x.shape[1] - pe.shape[1]
    return x + (F.pad(pe, (0, 0, missing, 0)) if missing else pe)


class AttentionInput(NamedTuple):
    """What attention projects to queries, keys and values, (B, N, D) each, where these differ."""

    q: Tensor
    k: Tensor
    v: Tensor


@JOININGS.register_module('default')
class Joining:
    """PE enters the residual stream once, at the input; without a PE, nothing is joined at all.

    Attributes:
        name: Set when it is built.
        table_per_layer: Whether each layer has a table of its own; the stream is then the tuple of those left.
        with_norm: Whether layers keep a ``pe_norm`` for the PE; ``norms_layer`` says which.
        at_input: Whether the PE is part of the tokens before the first layer.
        at_last_norm: Whether the norm behind the last layer joins the PE too; the model then keeps a ``pe_norm`` of
            its own beside that norm. A model without such a norm joins the PE in its layers alone.
        merged_by_own_norm: Whether a PE that is merged between stages has a ``pe_norm`` there, where ``with_norm``.
        patches_only: Whether it is for models whose tokens are all patches, without a class token.
        shares_norm: Whether a layer's norm of the tokens also norms the PE.
    """

    paper_name = 'Default'
    name: str
    table_per_layer = False
    with_norm = False
    at_input = True
    at_last_norm = False
    merged_by_own_norm = True
    patches_only = False
    shares_norm = True

    @property
    def travels(self) -> bool:
        """Whether layers receive the PE beside the tokens; by default, where it is not among the tokens."""
        return not self.at_input

    def norms_layer(self, layer: int, staged: bool) -> bool:
        """Check whether a layer, counted from 0, keeps a ``pe_norm``; ``staged`` models change their grid."""
        return self.with_norm

    def fits(self, kind: AbsolutePosition) -> bool:
        """Check whether this can join a kind of absolute PE; copies of a fixed table for each layer are no PE."""
        return kind.trainable or not self.table_per_layer

    def enter(self, x: Tensor, pe: Stream) -> Tensor:
        """Return the tokens (B, N, D) that the first layer receives: with the PE if it is ``at_input``."""
        return x if pe is None or not self.at_input else add_rows(x, pe)

    def advance(self, pe: Stream, pe_norm: nn.Module | None) -> tuple[Tensor | None, Stream]:
        """Return what one layer joins, (1, N, D) or None, and the PE for the next layer.

        Args:
            pe: The PE as the previous layer passed it on; None without an absolute PE.
            pe_norm: The layer's norm of the PE, if it has one.
        """
        return None, pe

    def combine(
        self, x: Tensor, pe_here: Tensor | None, norm: Callable[[Tensor], Tensor]
    ) -> tuple[Tensor, Tensor | AttentionInput]:
        """Return the residual stream (B, N, D) and attention's input of a layer that joins ``pe_here``.

        ``x`` is the residual stream before, ``norm`` the layer's norm of the tokens.
        """
        return x, norm(x)

    def join(
        self, x: Tensor, pe: Stream, norm: Callable[[Tensor], Tensor], pe_norm: nn.Module | None
    ) -> tuple[Tensor, Tensor | AttentionInput, Stream]:
        """Join the PE with the tokens in one layer.

        Args:
            x: The residual stream (B, N, D).
            pe: The PE as the previous layer passed it on; None without an absolute PE.
            norm: The layer's norm of the tokens.
            pe_norm: The layer's norm of the PE, if it has one.

        Returns:
            The residual stream (B, N, D); attention's input, (B, N, D) or an ``AttentionInput``; and the PE for the
            next layer.
        """
        pe_here, pe = self.advance(pe, pe_norm)
        return *self.combine(x, pe_here, norm), pe

    def change_grid(self, pe: Stream, change: Callable[[Tensor], Tensor]) -> Stream:
        """Take a PE that ``travels`` to the grid of the next stage by ``change``: (1, N, D) to (1, N', D')."""
        if pe is None or not self.travels:
            return None
        if isinstance(pe, Tensor):
            return change(pe)
        return tuple(change(table) for table in pe)

    def finish(
        self, x: Tensor, pe: Stream, norm: Callable[[Tensor], Tensor], pe_norm: Callable[[Tensor], Tensor] | None
    ) -> Tensor:
        """Return the tokens (B, N, D) behind the last norm.

        Args:
            x: The residual stream (B, N, D) behind the last layer.
            pe: The PE as the first layer received it, in a model of stages the first layer of the last stage.
            norm: The last norm of the tokens.
            pe_norm: The last norm of the PE, if ``at_last_norm``.
        """
        return norm(x)


@JOININGS.register_module('shared')
class SharedJoining(Joining):
    """The one PE is added to the residual stream before every layer."""

    paper_name = 'Shared'
    at_input = False

    def advance(self, pe, pe_norm):
        """Return the one PE twice."""
        return pe, pe

    def combine(self, x, pe_here, norm):
        """Add the PE to the residual stream."""
        x = add_rows(x, pe_here)
        return x, norm(x)


@JOININGS.register_module('unshared')
class UnsharedJoining(SharedJoining):
    """Every layer adds a trainable PE of its own to the residual stream."""

    paper_name = 'Unshared'
    table_per_layer = True

    def advance(self, pe, pe_norm):
        """Return the first PE of those left, and the others."""
        return pe[0], pe[1:]


@JOININGS.register_module('lape')
class LaPEJoining(Joining):
    """Attention's input gets the PE that the previous layer passed on, through a norm of the layer's own."""

    paper_name = 'LaPE'
    with_norm = True
    at_input = False
    shares_norm = False

    def advance(self, pe, pe_norm):
        """Return the normed PE twice; without a table, the encodings inside attention are in their normed form."""
        if pe is None:
            return None, None
        pe = pe_norm(pe)
        return pe, pe

    def combine(self, x, pe_here, norm):
        """Add the normed PE to attention's input."""
        return x, norm(x) if pe_here is None else add_rows(norm(x), pe_here)


@JOININGS.register_module('lape-shared')
class LaPESharedJoining(LaPEJoining):
    """Attention's input gets the one PE through a norm of the layer's own."""

    paper_name = 'LaPE, sharing PE'

    def advance(self, pe, pe_norm):
        """Return the normed PE, and the PE without the norm."""
        return pe_norm(pe), pe


@JOININGS.register_module('pvg')
class PVGJoining(LaPEJoining):
    """The PE enters the residual stream, and attention's input gets it as in LaPE from the second layer on."""

    paper_name = 'PVG'
    at_input = True
    travels = True
    merged_by_own_norm = False
    patches_only = True
    shares_norm = True

    def norms_layer(self, layer, staged):
        """Leave the first layer out, where the PE has just entered; a model of stages has it in all."""
        return staged or layer > 0

    def advance(self, pe, pe_norm):
        """Return the normed PE twice; a layer without a norm of the PE passes it on as it is."""
        return (None, pe) if pe_norm is None else super().advance(pe, pe_norm)


@JOININGS.register_module('mpvg')
class MPVGJoining(PVGJoining):
    """PVG whose last norm joins the PE too, through a norm of the PE's own."""

    paper_name = 'MPVG'
    at_last_norm = True

    def finish(self, x, pe, norm, pe_norm):
        """Add the normed PE to the normed tokens."""
        return add_rows(norm(x), pe_norm(pe))

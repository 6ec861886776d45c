"""Where the position embedding meets the tokens (LaPE, ICCV 2023, section 3 and Table 7).

With tokens x and PE w, the attention of layer l sees

    default       LN(x)                    x0 = patches + w
    shared        LN(x), x <- x + w        before every layer
    unshared      LN(x), x <- x + w_l      one table a layer
    lape          LN(x) + w_l              w_l = LN_l(w_{l-1}), w_{-1} = w, x0 = patches
    lape-shared   LN(x) + LN_l(w)          x0 = patches

Only attention sees the joined input. A new joining is one class in one file, registered in ``JOININGS`` under the name
that ``pe_joining`` takes.
"""

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor, nn

from mmlape.models.position.base import AbsolutePosition
from mmlape.models.position.chain import chained_norm
from mmlape.registry import JOININGS

Stream = Tensor | tuple[Tensor, ...] | None
"""What travels along the layers beside the tokens: the PE as the next layer receives it."""


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
        with_norm: Whether each layer keeps a ``pe_norm`` for the PE.
        at_input: Whether the PE is part of the tokens before the first layer.
        shares_norm: Whether a layer's norm of the tokens also norms the PE.
    """

    paper_name = 'Default'
    name: str
    table_per_layer = False
    with_norm = False
    at_input = True
    shares_norm = True

    def fits(self, kind: AbsolutePosition) -> bool:
        """Check whether this can join a kind of absolute PE; copies of a fixed table for each layer are no PE."""
        return kind.trainable or not self.table_per_layer

    def enter(self, x: Tensor, pe: Stream) -> Tensor:
        """Return the tokens (B, N, D) that the first layer receives."""
        return x if pe is None else x + pe

    def join(
        self, x: Tensor, pe: Stream, norm: Callable[[Tensor], Tensor], pe_norm: nn.Module | None
    ) -> tuple[Tensor, Tensor | AttentionInput, Stream]:
        """Join the PE with the tokens in one layer.

        Args:
            x: The residual stream (B, N, D).
            pe: The PE as the previous layer passed it on; None without an absolute PE.
            norm: The layer's norm of the tokens.
            pe_norm: The layer's norm of the PE, if ``with_norm``.

        Returns:
            The residual stream (B, N, D); attention's input, (B, N, D) or an ``AttentionInput``; and the PE for the
            next layer.
        """
        return x, norm(x), pe

    def change_grid(self, pe: Stream, change: Callable[[Tensor], Tensor]) -> Stream:
        """Take the PE to the grid of the next stage by ``change``, which maps (1, N, D) to (1, N', D').

        Where it is ``at_input``, the tokens have taken it along, and nothing is left to join.
        """
        if pe is None or self.at_input:
            return None
        if isinstance(pe, Tensor):
            return change(pe)
        return tuple(change(table) for table in pe)


@JOININGS.register_module('shared')
class SharedJoining(Joining):
    """The one PE is added to the residual stream before every layer."""

    paper_name = 'Shared'
    at_input = False

    def enter(self, x: Tensor, pe: Stream) -> Tensor:
        """Return the tokens as they are."""
        return x

    def join(self, x, pe, norm, pe_norm):
        """Add the PE to the residual stream."""
        x = x + pe
        return x, norm(x), pe


@JOININGS.register_module('unshared')
class UnsharedJoining(SharedJoining):
    """Every layer adds a trainable PE of its own to the residual stream."""

    paper_name = 'Unshared'
    table_per_layer = True

    def join(self, x, pe, norm, pe_norm):
        """Add the first PE of those left."""
        x = x + pe[0]
        return x, norm(x), pe[1:]


@JOININGS.register_module('lape')
class LaPEJoining(Joining):
    """Attention's input gets the PE that the previous layer passed on, through a norm of the layer's own."""

    paper_name = 'LaPE'
    with_norm = True
    at_input = False
    shares_norm = False

    def enter(self, x: Tensor, pe: Stream) -> Tensor:
        """Return the tokens as they are."""
        return x

    def join(self, x, pe, norm, pe_norm):
        """Add the normed PE to attention's input, and pass it on."""
        if pe is None:  # there is no table: the encodings inside attention are in their normed form
            return x, norm(x), None
        pe = chained_norm(pe_norm, pe)
        return x, norm(x) + pe, pe


@JOININGS.register_module('lape-shared')
class LaPESharedJoining(LaPEJoining):
    """Attention's input gets the one PE through a norm of the layer's own."""

    paper_name = 'LaPE, sharing PE'

    def join(self, x, pe, norm, pe_norm):
        """Add the normed PE to attention's input, and pass the PE on without the norm."""
        return x, norm(x) + pe_norm(pe), pe

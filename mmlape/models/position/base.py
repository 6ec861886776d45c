"""The contracts of a position encoding: it is joined with the tokens, acts in attention, or between layers.

A new kind is one class in one file, registered in ``POSITION_ENCODINGS`` under the name that ``pe_type`` takes. A
module that has parameters of position encodings names them in ``pe_names``; what ``attach`` registers is added there.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from mmlape.errors import ConfigError
from mmlape.models.grid import Grid, resize_map, tile_map


class AttentionSlot(NamedTuple):
    """What an encoding inside attention is attached to: one layer of one model."""

    layer: int  # index of the layer
    grid: Grid  # grid of patches that its tables are made for
    num_prefix: int = 0  # tokens before the patches
    normed: bool = False  # whether the joining asks for the normed form
    interpolate_mode: str = 'bicubic'  # how tables are resized to other grids
    window: bool = False  # whether the grid is that of a window, whatever the size of the image
    num_layers: int = 1  # layers of the model

    def require_resize(self, name: str) -> None:
        """Raise ConfigError if an encoding's tables of offsets cannot be resized to the grid of another image."""
        if self.interpolate_mode == 'tile' and not self.window:
            raise ConfigError(
                f"interpolate_mode='tile' repeats an absolute PE, but pe_type={name!r} has tables "
                'of offsets, which would have to be resized; choose another mode, such as '
                "'bicubic', or attention in windows"
            )


class AbsolutePosition(ABC):
    """An absolute position embedding w: a table with a row for each token, which never depends on the image.

    The backbone keeps it as ``pos_embed``, or ``pos_embed0``, ``pos_embed1`` ... where each layer has its own: a
    parameter if the kind is trainable, else a buffer.
    """

    name: str
    acts = 'an absolute PE'
    """How messages call this contract."""
    trainable = False
    unstored = False
    """Whether public files lack the table, which follows from its formula."""
    std = 0.02
    """Standard deviation of random initial values; a backbone may set another where the user has not."""
    training_arguments: tuple[str, ...] = ('std',)
    """Arguments of training or of other grids, on which weights do not depend: files of other ones are taken."""

    @abstractmethod
    def table(self, grid: Grid, embed_dims: int, num_prefix: int) -> Tensor:
        """Build the initial table, (1, num_prefix + rows * columns, embed_dims), which the model casts."""

    def resize(self, table: Tensor, src: Grid, dst: Grid, num_prefix: int, mode: str) -> Tensor:
        """Resize a table (1, num_prefix + N_src, D) to another grid; prefix rows are kept."""
        return resize_absolute(table, src, dst, num_prefix, mode)

    def matches(self, table: Tensor, grid: Grid, num_prefix: int) -> bool:
        """Check whether a stored table (1, num_prefix + N, D) can be of this kind: a fixed one equals its formula."""
        if not self.trainable and table.shape[1] != num_prefix + grid[0] * grid[1]:
            return False
        try:
            return self.trainable or torch.allclose(
                table.double(), self.table(grid, table.shape[2], num_prefix).double(), atol=1e-3
            )
        except (ValueError, RuntimeError):  # there is no formula for this width
            return False


class AttentionPosition:
    """A position encoding inside attention; each layer has an instance of its own.

    ``attach`` registers parameters on the attention module, under the names that checkpoints have, and the other
    methods read them there.
    """

    name: str
    acts = 'inside attention'
    """How messages call this contract."""
    slot: AttentionSlot
    normed_joinings: tuple[str, ...] = ()
    """Joinings that this kind takes without an absolute one beside it, as its normed form."""
    windows = False
    """Whether it works in windowed attention."""
    has_grid = False
    """Whether its parameters are made for one grid."""
    reads_weights = False
    """Whether ``values`` is used; attention then computes its weights explicitly."""
    reads_tokens = False
    """Whether ``logits`` takes one more argument: the tokens (B, N, D) that queries are projected from."""
    training_arguments: tuple[str, ...] = ()
    """Arguments of training or of other grids, on which weights do not depend: files of other ones are taken."""

    def attach(self, attn: nn.Module, slot: AttentionSlot) -> None:
        """Keep the slot; register parameters and buffers on ``attn``, which has ``num_heads`` and ``head_dims``."""
        self.slot = slot

    def rotate(self, attn: nn.Module, q: Tensor, k: Tensor, grid: Grid) -> tuple[Tensor, Tensor]:
        """Transform queries and keys, (B, heads, N, d) each."""
        return q, k

    def logits(self, attn: nn.Module, q: Tensor, k: Tensor, grid: Grid) -> Tensor | None:
        """Return what is added to the scaled logits, (1 or B, 1 or heads, N, N), or None.

        Args:
            attn: The module that ``attach`` was called with.
            q: Queries (B, heads, N, d), not scaled.
            k: Keys (B, heads, N, d).
            grid: Grid of the patch tokens.
        """
        return None

    def values(self, attn: nn.Module, weights: Tensor, grid: Grid) -> Tensor | None:
        """Return what is added to attention's output, (B, heads, N, d), from its weights (B, heads, N, N)."""
        return None

    def fit(self, stored: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the tensors of a stored attention, by name, without what this slot has no use for."""
        return stored

    def resize(self, stored: dict[str, Tensor], src: Grid) -> dict[str, Tensor]:
        """Return the tensors of a stored attention, by name, made for grid ``src``, as ``slot`` has them."""
        return stored

    def found_in(self, attn: dict[str, Tensor]) -> bool:
        """Check for the tensors of this kind in a stored attention module, by name; asked of kinds of one grid."""
        return False

    def ambiguous_options(self, attn: dict[str, Tensor], num_prefix: int) -> list[str]:
        """Return in words, the most usual first, which arguments leave such tensors; none if names and shapes tell."""
        return []

    def infer_grid(self, attn: dict[str, Tensor], known: Grid | None = None) -> Grid | None:
        """Return the grid of a stored attention's parameters: what they tell, ``known`` if it fits; else a square."""
        return None

    def drawn(self, attn: nn.Module, grid: Grid) -> Tensor | None:
        """Return what a figure shows of a layer: (N, N) for the patches of a grid; None if nothing is drawn."""
        return None


class LayerPosition(ABC):
    """A position encoding between layers, which may depend on the tokens; each layer before it has an instance.

    ``attach`` registers parameters on that layer, under the names that checkpoints have, and ``apply`` reads them
    there. No joining concerns it.
    """

    name: str
    acts = 'between layers'
    """How messages call this contract."""
    after: Sequence[int] = (0,)
    """Layers that it follows, counted from 0."""
    training_arguments: tuple[str, ...] = ()
    """Arguments of training or of other grids, on which weights do not depend: files of other ones are taken."""

    @abstractmethod
    def attach(self, layer: nn.Module, embed_dims: int) -> None:
        """Register parameters and buffers on a layer whose tokens have the width ``embed_dims``."""

    @abstractmethod
    def apply(self, layer: nn.Module, x: Tensor, grid: Grid) -> Tensor:
        """Return the next layer's tokens from this layer's, (B, P + N, D): prefix tokens, then the grid's patches."""


@contextmanager
def attaching(module: nn.Module, encoding: AttentionPosition | LayerPosition) -> Iterator[None]:
    """Add what an encoding registers to the module's ``pe_names``; refuse one that would replace another's parameters.

    Raises:
        ConfigError: If a parameter of the module is replaced inside.
    """
    before = dict(module.named_parameters())
    yield
    after = dict(module.named_parameters())
    lost = [key for key, parameter in before.items() if after.get(key) is not parameter]
    if lost:
        name = getattr(encoding, 'name', type(encoding).__name__)
        raise ConfigError(f'pe_type has {name!r} twice with the same parameters ({lost[0]}): leave one')
    module.pe_names = (*getattr(module, 'pe_names', ()), *(key for key in after if key not in before))


_OF_TIMM = re.compile(r'((absolute_)?pos_embed\d*|rope\..+|(.+\.)?relative_position_bias_table)$')


def position_parameters(model: nn.Module) -> set[str]:
    """Return the names of the parameters of a model's position encodings; norms of an absolute PE are the layers'.

    Models of timm, which have ``no_weight_decay``, do not name them apart.
    """
    parameters = set()
    for prefix, module in model.named_modules():
        names = getattr(module, 'pe_names', ())
        if hasattr(type(module), 'no_weight_decay'):
            names = [name for name, _ in module.named_parameters() if _OF_TIMM.match(name)]
        parameters |= {f'{prefix}.{name}'.removeprefix('.') for name in names}
    return parameters


def resize_absolute(table: Tensor, src: Grid, dst: Grid, num_prefix: int, mode: str = 'bicubic') -> Tensor:
    """Resize an absolute PE (1, num_prefix + N_src, D) to grid ``dst``; the prefix rows are kept as they are.

    The mode is one of ``torch.nn.functional.interpolate``; or 'tile', which repeats the PE. Where the grids are equal,
    the table itself is returned.

    Raises:
        ValueError: If the number of rows is not ``num_prefix`` plus the cells of ``src``.
    """
    if table.shape[1] != num_prefix + src[0] * src[1]:
        raise ValueError(
            f'a position embedding of {table.shape[1]} rows is not {num_prefix} prefix rows and a '
            f'{src[0]}x{src[1]} grid'
        )
    if src == dst:
        return table
    patches = table[0, num_prefix:]
    patches = tile_map(patches, src, dst) if mode == 'tile' else resize_map(patches, src, dst, mode)
    return torch.cat((table[:, :num_prefix], patches[None]), dim=1)

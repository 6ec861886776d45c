"""The position encodings of a backbone: tables of the absolute PE, encodings between layers, norms of the PE."""

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from mmlape.common_random import common_numbers
from mmlape.errors import ConfigError
from mmlape.models.base.layer_stack import LayerStack
from mmlape.models.grid import Grid
from mmlape.models.position import Joining, NormPlaces, Position, Stream, build_pe_norm


class JoinsPosition(LayerStack):
    """Has the parameters of the position encodings; its layers join them.

    Attributes:
        position: The position encodings.
        embed_dims: Width D of the tokens.
        grid: Grid of tokens of the images that the PE is made for.
        num_prefix: How many tokens before the patches run along.
        pe_prefix: Rows of the PE tables before those of the patches.
        pe_norm: The last norm's norm of the PE, where the joining has one.
        without_prefix: What leaves the prefix tokens out, for messages.
        interpolate_mode: Of PE resizing.
    """

    position: Position
    embed_dims: int
    grid: Grid
    num_prefix: int = 0
    pe_prefix: int = 0
    pe_norm: nn.Module | None
    without_prefix: ClassVar[str] = 'take a model without it'
    interpolate_mode: str = 'bicubic'

    @property
    def joining(self) -> Joining:
        """How the layers and the last norm join the PE."""
        return self.position.joining

    @property
    def last_norm(self) -> nn.Module | None:
        """The norm behind the last layer, if there is one."""
        return getattr(self, 'norm', None)

    def table_tokens(self) -> dict[str, int]:
        """Return the prefix tokens that the PE tables have rows for, and how many each."""
        return dict.fromkeys(self.prefix_tokens[: self.pe_prefix], 1)

    def stored_tables(self) -> Sequence[str]:
        """Return the names of the absolute PE's tables in files."""
        return self.pe_names

    def table_grid(self, name: str, grid: Grid) -> Grid:
        """Return the grid of a PE table of a model whose first layer's tokens have the grid ``grid``."""
        return self.position.absolute.table_grid(grid)

    def resize_table(self, table: Tensor, src: Grid, dst: Grid, num_prefix: int) -> Tensor:
        """Resize a file's table (1, num_prefix + N_src, D) to another grid."""
        return self.position.absolute.resize(table, src, dst, num_prefix, self.interpolate_mode)

    def add_tables(self, num_layers: int) -> None:
        """Add the absolute PE, if it is not there yet: parameters if it is trainable, else buffers, saved as well."""
        if self.position.absolute is None or self.pe_names:
            return
        per_layer = self.position.joining.table_per_layer
        self.pe_names = [f'{self.table_name}{i}' for i in range(num_layers)] if per_layer else [self.table_name]
        for name in self.pe_names:
            self.add_table(name, self.embed_dims)

    def add_table(self, name: str, dims: int) -> None:
        """Add one table of the absolute PE, for the grid that ``table_grid`` says, in torch's default dtype.

        A half one is that of a float32 model which is cast afterwards.
        """
        kind, dtype = self.position.absolute, torch.get_default_dtype()
        table = kind.table(self.table_grid(name, self.grid), dims, self.pe_prefix)
        table = table.to(torch.promote_types(dtype, torch.float32)).to(dtype)
        if kind.trainable:
            self.register_parameter(name, nn.Parameter(table))
        else:
            self.register_buffer(name, table)

    def add_encodings(self) -> None:
        """Let the encodings between layers follow theirs, if they do not yet.

        Raises:
            ConfigError: If one follows a layer that is not there.
        """
        if not self.position.between or any(layer.encodings for layer in self.all_layers):
            return
        for number, layer in enumerate(self.all_layers):
            for encoding in self.position.build_between():
                wrong = [after for after in encoding.after if not 0 <= after < self.num_layers]
                if wrong:
                    raise ConfigError(
                        f'pe_type={encoding.name!r}: after={wrong[0]} is no layer; choose from 0 '
                        f'to {self.num_layers - 1}'
                    )
                if number in encoding.after:
                    layer.add_encoding(encoding)

    def add_last_pe_norm(self) -> None:
        """Add the last norm's norm of the PE, of the layers' kind, if the joining has one and there is a last norm."""
        position = self.position
        if position.pe_norm and position.joining.at_last_norm and self.last_norm is not None:
            layer = self.all_layers[-1]
            self.pe_norm = build_pe_norm(position.pe_norm, layer.embed_dims, layer.norm_cfg)

    def norm_places(self) -> NormPlaces:
        """Return where there are norms of the PE."""
        layers = tuple(self.position.pe_norm_of(number) is not None for number in range(self.num_layers))
        last = None if self.last_norm is None else self.pe_norm is not None
        return NormPlaces(layers, last, staged=self.position.staged)

    def position_stream(self, grid: Grid, num_prefix: int, drawn: Tensor | None = None) -> Stream:
        """Read the PE for a grid of patch tokens, for a model with ``num_prefix`` tokens before them: 0, or all.

        Tokens without a row in the tables have none here either. ``drawn`` is what ``draw_numbers`` returned; without
        it the PE is that of evaluation.

        Returns:
            (1 or B, rows, D) with as many rows as tokens that have one, num_prefix + N or N; a tuple of those where
            each layer has a table; None without an absolute PE.
        """
        tables = [self.read_table(name, grid, self.pe_prefix, drawn) for name in self.pe_names]
        if num_prefix < self.pe_prefix:
            tables = [table[:, self.pe_prefix :] for table in tables]
        if self.position.joining.table_per_layer:
            return tuple(tables)
        return tables[0] if tables else None

    def draw_numbers(self, x: Tensor) -> Tensor | None:
        """Draw where the tables are read for images or tokens (B, ...): None in evaluation, and of frozen tables."""
        kind = self.position.absolute
        if not (self.training and self.pe_names and kind.draws):
            return None
        if not getattr(self, self.pe_names[0]).requires_grad:
            return None
        return common_numbers(x.shape[0] if kind.draws == 'image' else None, x.device)

    def read_table(self, name: str, grid: Grid, num_prefix: int, drawn: Tensor | None) -> Tensor:
        """Read one table for a grid of tokens, (1 or B, num_prefix + N, D)."""
        made_for, mode = self.table_grid(name, self.grid), self.interpolate_mode
        return self.position.absolute.read(getattr(self, name), made_for, grid, num_prefix, mode, drawn)


def require_encodings(backbone: JoinsPosition) -> None:
    """Check that layers have what the position encodings need in each of them.

    Raises:
        ConfigError: If one lacks it, or if the joining is for patch tokens only and there are others.
    """
    position, model = backbone.position, type(backbone).__name__
    if position.joining.patches_only and backbone.num_prefix:
        raise ConfigError(
            f'{model}: pe_joining={position.joining.name!r} is for pooled patch tokens, and this '
            f'model has {", ".join(backbone.prefix_tokens)}: {backbone.without_prefix}'
        )
    declared = [cfg['type'] for cfg in position.inside]
    for number, layer in enumerate(backbone.all_layers if declared or position.pe_norm else ()):
        built = [encoding.name for encoding in getattr(getattr(layer, 'attention', None), 'encodings', ())]
        if built != declared:
            raise ConfigError(
                f'{model}: pe_type says {declared or "nothing"} inside attention, but layer '
                f'{number} has {built or "nothing"}; build its attention with '
                'encodings=self.position.build_inside() and a slot'
            )
        wanted, found = position.pe_norm_of(number), getattr(layer, 'pe_norm', None)
        if (wanted is None) != (found is None):
            norms = 'does not norm' if wanted is None else 'norms'
            raise ConfigError(
                f'{model}: pe_joining={position.joining.name!r} {norms} the PE in layer {number}, '
                f'which has {"a" if found else "no"} pe_norm; build it with '
                f'pe_norm=self.position.pe_norm_of({number})'
            )

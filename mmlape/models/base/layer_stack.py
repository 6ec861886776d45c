"""Which layers a backbone has, in which order, and how deep in the network a parameter is."""

from collections.abc import Sequence
from typing import ClassVar

from torch import nn


class LayerStack(nn.Module):
    """Knows its layers; a hierarchical backbone overrides ``all_layers`` and ``layer_names``.

    Attributes:
        layers_name: The module list of the layers, as parameter names have it.
        embedding_names: Beginnings of the names of parameters before the first layer.
        table_name: The name of the absolute PE's table.
        pe_names: Names of the absolute PE's tables.
        prefix_tokens: Names of the tokens that can precede the patches.
    """

    layers_name: ClassVar[str] = 'blocks'
    embedding_names: ClassVar[tuple[str, ...]] = ('patch_embed.', 'norm_pre.')
    table_name: ClassVar[str] = 'pos_embed'
    pe_names: Sequence[str] = ()
    prefix_tokens: ClassVar[tuple[str, ...]] = ()

    @property
    def all_layers(self) -> Sequence[nn.Module]:
        """The layers of all stages, in the order in which they run."""
        return getattr(self, self.layers_name)

    @property
    def layer_names(self) -> list[str]:
        """What the parameter names of each layer begin with."""
        return [f'{self.layers_name}.{number}.' for number in range(self.num_layers)]

    @property
    def num_layers(self) -> int:
        """How many layers there are."""
        return len(self.all_layers)

    def shard_units(self) -> Sequence[nn.Module]:
        """Return the parts that sharded training (FSDP) gathers one at a time."""
        return self.all_layers

    def compile_units(self) -> Sequence[nn.Module]:
        """Return the parts that are compiled one at a time, each without a graph break."""
        return self.all_layers

    def get_layer_depth(self, param_name: str, prefix: str = '') -> tuple[int, int]:
        """Return the depth of a parameter for layer-wise learning rates, and the number of depths.

        It is 0 for the embeddings, k + 1 for layer k with its PE norm, and the number of layers + 1 for what follows;
        ``prefix`` is what the parameter's name begins with before this backbone's own names.
        """
        name = param_name.removeprefix(prefix)
        depths = self.num_layers + 2
        for number, layer in enumerate(self.layer_names, 1):
            if name.startswith(layer):
                return number, depths
        if name.startswith((*self.embedding_names, self.table_name, *self.prefix_tokens)):
            return 0, depths
        return depths - 1, depths

    def part_of(self, param_name: str) -> str:
        """Return the part of the network that a parameter belongs to, for figures over depth.

        Parts are 'patch_embed', 'position' (PE tables and prefix tokens), 'blocks.0' and so on for the layers, and
        'backbone' for what follows.
        """
        depth, depths = self.get_layer_depth(param_name)
        if depth == 0:
            return (
                'position' if param_name in (self.table_name, *self.pe_names, *self.prefix_tokens) else 'patch_embed'
            )
        return f'blocks.{depth - 1}' if depth < depths - 1 else 'backbone'

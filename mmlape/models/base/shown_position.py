"""What the figures of position encodings read of a backbone."""

from collections.abc import Iterator

import torch
from torch import Tensor

from mmlape.models.base.position_tables import JoinsPosition
from mmlape.models.grid import Grid


class ShowsPosition(JoinsPosition):
    """Shows the PE as its layers see it."""

    def layer_grids(self, grid: Grid, inside: bool = False) -> list[Grid]:
        """Return the grid of each layer's tokens, from that of the first layer's patches.

        With ``inside``, return that of the tokens that attend to one another: of a window, where there are windows.
        """
        windows = [getattr(layer.attention, 'window_size', None) for layer in self.all_layers] if inside else []
        return [(side, side) if side else grid for side in windows] or [grid] * self.num_layers

    @torch.no_grad()
    def layer_positions(self, grid: Grid) -> Iterator[Tensor]:
        """Yield the PE of the patch tokens as each layer's attention sees it, (N, D) a layer.

        The joining runs on tokens that are zero everywhere, so that only the PE is left.
        """
        pe = self.position_stream(grid, 0)
        x = self.position.joining.enter(torch.zeros_like(pe[0] if isinstance(pe, tuple) else pe), pe)
        norm_pre = getattr(self, 'norm_pre', None)
        x = x if norm_pre is None else norm_pre(x)
        for layer in self.all_layers:
            x, seen, pe = layer.join_position(x, pe)
            yield seen[0]

    @torch.no_grad()
    def drawn_encodings(self, grid: Grid) -> Iterator[Tensor | None]:
        """Yield what is drawn of the first encoding inside each layer's attention, (N, N), or None."""
        for layer, grid_of_layer in zip(self.all_layers, self.layer_grids(grid, inside=True)):
            drawn = (encoding.drawn(layer.attention, grid_of_layer) for encoding in layer.attention.encodings)
            yield next((values for values in drawn if values is not None), None)

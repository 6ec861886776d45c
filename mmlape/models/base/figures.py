"""What figures show of a backbone's position encodings, as its layers see them."""

from collections.abc import Iterator

import torch
from torch import Tensor

from mmlape.models.base.backbone import BaseBackbone
from mmlape.models.grid import Grid


def attended_grids(model: BaseBackbone, grid: Grid) -> list[Grid]:
    """Return the grid of the tokens that attend to one another in each layer: of a window, where there are windows."""
    return [layer.attention.attended_grid(of) for layer, of in zip(model.all_layers, model.layer_grids(grid))]


@torch.no_grad()
def layer_positions(model: BaseBackbone, grid: Grid) -> Iterator[Tensor]:
    """Yield the PE of the patch tokens as each layer's attention sees it, (N, D) a layer.

    The joining runs on tokens that are zero everywhere, so that only the PE is left.
    """
    pe = model.position_stream(grid, 0)
    x = model.position.joining.enter(torch.zeros_like(pe[0] if isinstance(pe, tuple) else pe), pe)
    norm_pre = getattr(model, 'norm_pre', None)
    x = x if norm_pre is None else norm_pre(x)
    for number, (layer, of_layer) in enumerate(zip(model.all_layers, model.layer_grids(grid))):
        x, seen, pe = layer.join_position(x, pe)
        yield seen[0]
        x, pe = model.change_stage(number, x, pe, of_layer)


@torch.no_grad()
def shown_encodings(model: BaseBackbone, grid: Grid) -> Iterator[Tensor | None]:
    """Yield what a figure shows of the first encoding inside each layer's attention, (N, N), or None."""
    for layer, of_layer in zip(model.all_layers, attended_grids(model, grid)):
        shown = (encoding.drawn(layer.attention, of_layer) for encoding in layer.attention.encodings)
        yield next((values for values in shown if values is not None), None)

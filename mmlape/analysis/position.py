"""Position correlation by layer, from the live model (LaPE, ICCV 2023, section 3.4, Figures 1, 3, 4, I and II).

    s_ij = cos(p_i, p_j),   p: the PE of the patch tokens as a layer's attention sees it

For LaPE p is w_l; where PE and tokens share a norm it is that norm of the PE alone, which Eq. 6 of the paper scales by
a number a row, of which a cosine knows nothing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from scipy.stats import spearmanr
from torch import Tensor

from mmlape.errors import ConfigError
from mmlape.models.base.backbone import BaseBackbone
from mmlape.models.grid import Grid

COSINE, TERM = 'cosine similarity', 'relative bias, mean over heads'
MOST_ROWS = 256  # of a map, that the locality is computed from
MOST_CELLS = 1024  # a side, of a map that is kept


def token_grid(model: BaseBackbone, size: Grid | None) -> Grid:
    """Return the tokens' grid of an image of ``size`` (height, width) pixels; by default, the one of the PE."""
    return model.grid if size is None else model.grid_of(size)


@torch.no_grad()
def pe_table(model: BaseBackbone, grid: Grid) -> Tensor:
    """Return the PE before any layer, resized to a grid, (N, D); of several tables the first one.

    Raises:
        ConfigError: If the model has no absolute PE.
    """
    if model.position.absolute is None:
        raise ConfigError(f'{type(model).__name__} has no absolute position embedding to look at')
    pe = model.position_stream(grid, 0)
    return (pe[0] if isinstance(pe, tuple) else pe)[0].detach()


def cosines(pe: Tensor) -> np.ndarray:
    """Compute the cosine similarity of the rows of a PE (N, D), in float64: (N, N)."""
    unit = F.normalize(pe.detach().double(), dim=1)
    return (unit @ unit.t()).cpu().numpy()


def correlation_maps(model: BaseBackbone, grid: Grid) -> Iterator[tuple[str, Grid, np.ndarray]]:
    """Yield 'layer 0', its grid, (N, N) and so on: cosines of an absolute PE, else what an encoding inside shows.

    A single table of cosines comes first, as 'PE', before any layer.

    Raises:
        ConfigError: If the model has nothing that can be drawn.
    """
    if model.position.absolute is not None:
        if not model.position.joining.table_per_layer:
            yield 'PE', grid, cosines(pe_table(model, grid))
        maps = (cosines(rows) for rows in model.layer_positions(grid))
    elif model.position.inside:
        maps = (None if term is None else term.double().cpu().numpy() for term in model.drawn_encodings(grid))
    else:
        raise ConfigError(f'{type(model).__name__} has no position encoding that can be drawn')
    grids = model.layer_grids(grid, inside=model.position.absolute is None)
    for layer, (own, values) in enumerate(zip(grids, maps)):
        if values is None:
            raise ConfigError(
                f'{type(model).__name__}: nothing can be drawn of the position encodings of layer {layer}'
            )
        yield f'layer {layer}', own, values


@dataclass(frozen=True)
class LayerView:
    """What one layer sees.

    Attributes:
        label: 'PE' or 'layer 0' and so on.
        pairs: (N, N), float32; smaller where the grid has more than `MOST_CELLS` tokens.
        row: One token's row of it on the layer's grid, (rows, columns).
        token: The (row, column) of that token.
        numbers: As `describe_map` gives them.
    """

    label: str
    pairs: np.ndarray
    row: np.ndarray
    token: tuple[int, ...]
    numbers: dict[str, float]


@dataclass(frozen=True)
class PositionView:
    """What a model's layers see; ``token`` is the (row, column) of the first grid that `LayerView.row` is of."""

    name: str
    kind: str
    grid: Grid
    token: Grid
    layers: list[LayerView]


def view_positions(
    model: BaseBackbone,
    name: str,
    size: Grid | None = None,
    token: Grid | None = None,
    layers: Sequence[int] = (),
) -> PositionView:
    """Compute the position correlation of a model.

    Args:
        model: The backbone.
        name: What to call it.
        size: (height, width) in pixels of an image; by default, of the images that the PE is made for.
        token: (row, column) of the token to look at alone, in later stages and windows that at the same share of
            their sides; by default the centre.
        layers: Which ones, counted from 0; all by default.

    Raises:
        ConfigError: If there is no such layer or token, or no position encoding.
    """
    grid = token_grid(model, size)
    token = token or (grid[0] // 2, grid[1] // 2)
    unknown = [layer for layer in layers if not 0 <= layer < model.num_layers]
    if unknown:
        raise ConfigError(f'{name} has the layers 0 to {model.num_layers - 1}, not {unknown[0]}')
    if not all(0 <= place < side for place, side in zip(token, grid)):
        raise ConfigError(f'{name} has a grid of {grid[0]} x {grid[1]} tokens, so there is no token {token}')
    wanted = {'PE', *(f'layer {layer}' for layer in layers or range(model.num_layers))}
    views = []
    for label, own, values in correlation_maps(model, grid):
        if label in wanted:
            place = tuple(at * side // first for at, side, first in zip(token, own, grid))
            row = values[place[0] * own[1] + place[1]].reshape(own)
            views.append(LayerView(label, _reduced(values), row, place, describe_map(values, own)))
    return PositionView(name, TERM if model.position.absolute is None else COSINE, grid, token, views)


def _reduced(values: np.ndarray) -> np.ndarray:
    values = values.astype(np.float32)
    if len(values) <= MOST_CELLS:
        return values
    return cv2.resize(values, (MOST_CELLS, MOST_CELLS), interpolation=cv2.INTER_AREA)


def describe_map(values: np.ndarray, grid: Grid) -> dict[str, float]:
    """Describe what a map (N, N) shows, in numbers.

    Returns:
        'mean' of all pairs of different tokens; 'beside' and 'above', the means of neighbours in a row and in a
        column (equal in a 2-D correlation, far apart in a 1-D one); 'locality', Spearman's correlation of a pair's
        value with its nearness, 1 where nearer always means more alike.
    """
    rows, columns = grid
    count = rows * columns
    cells = np.stack(np.unravel_index(np.arange(count), grid), axis=1)  # (N, 2)
    square = values.reshape(rows, columns, rows, columns)
    row, column = np.ogrid[:rows, :columns]
    right, below = (row, column[:, :-1], row, column[:, 1:]), (row[:-1], column, row[1:], column)
    picks = np.unique(np.linspace(0, count - 1, min(count, MOST_ROWS)).round().astype(int))
    distance = np.linalg.norm(cells[picks, None] - cells[None], axis=2)
    pairs = distance > 0
    enough = count > 2 and np.ptp(values[picks][pairs]) > 0
    return dict(
        mean=float((values.sum() - np.trace(values)) / max(count * (count - 1), 1)),
        beside=float(square[right].mean()) if columns > 1 else np.nan,
        above=float(square[below].mean()) if rows > 1 else np.nan,
        locality=float(-spearmanr(values[picks][pairs], distance[pairs]).statistic) if enough else np.nan,
    )

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
from mmlape.models import VisionTransformer
from mmlape.models.position.kinds import ABSOLUTE_PE, Grid

COSINE, BIAS = 'cosine similarity', 'relative bias, mean over heads'
MOST_ROWS = 256  # of a map, that the locality is computed from
MOST_CELLS = 1024  # a side, of a map that is kept


def token_grid(model: VisionTransformer, size: Grid | None) -> Grid:
    """The tokens' grid of an image of ``size`` (height, width) pixels; by default, the one that the PE is made for."""
    if size is None:
        return model.grid
    return tuple(-(-side // model.patch_size) for side in size)


@torch.no_grad()
def layer_positions(model: VisionTransformer, grid: Grid) -> Iterator[Tensor]:
    """The PE of the patch tokens as each layer's attention sees it, (N, D) a layer.

    The model's own joining runs on tokens that are zero everywhere, so that only the PE is left in attention's input.
    Where tokens and PE have norms of their own, the tokens' norm is left out, since its bias is no part of the PE.

    Raises:
        ConfigError: The model has no absolute PE.
    """
    _require(model)
    pe = model.position_stream(grid, 0)
    x = model.joining.enter(torch.zeros_like(pe[0] if isinstance(pe, tuple) else pe), pe)
    if model.norm_pre is not None:
        x = model.norm_pre(x)
    for block in model.blocks:
        norm = torch.zeros_like if model.joining.with_norm else block.norm1
        x, seen, pe = model.joining.join(x, pe, norm, block.pe_norm)
        yield seen[0]


@torch.no_grad()
def pe_table(model: VisionTransformer, grid: Grid) -> Tensor:
    """The PE before any layer, resized to a grid, (N, D); of several tables the first one."""
    _require(model)
    pe = model.position_stream(grid, 0)
    return (pe[0] if isinstance(pe, tuple) else pe)[0].detach()


def _require(model: VisionTransformer) -> None:
    if model.pe_type not in ABSOLUTE_PE:
        raise ConfigError(f'a model with pe_type={model.pe_type!r} has no position embedding of tokens to look at')


def cosines(pe: Tensor) -> np.ndarray:
    """Cosine similarity of the rows of a PE (N, D), in float64: (N, N)."""
    unit = F.normalize(pe.detach().double(), dim=1)
    return (unit @ unit.t()).cpu().numpy()


@torch.no_grad()
def bias_maps(model: VisionTransformer, grid: Grid) -> Iterator[np.ndarray]:
    """The relative position bias of each layer, the mean over its heads, without prefix tokens: (N, N) a layer."""
    for block in model.blocks:
        bias = block.attn.position_bias(grid)[0].mean(0)  # (prefix + N, prefix + N)
        yield bias[model.num_prefix :, model.num_prefix :].double().cpu().numpy()


def correlation_maps(model: VisionTransformer, grid: Grid) -> Iterator[tuple[str, np.ndarray]]:
    """('layer 0', (N, N)) and so on: cosines of an absolute PE, or the bias of a relative one.

    A single table of cosines comes first, as 'PE', before any layer.

    Raises:
        ConfigError: The model has no position embedding.
    """
    if model.pe_type == 'rpe':
        maps = bias_maps(model, grid)
    else:
        maps = map(cosines, layer_positions(model, grid))
        if not model.joining.table_per_layer:
            yield 'PE', cosines(pe_table(model, grid))
    for layer, values in enumerate(maps):
        yield f'layer {layer}', values


@dataclass(frozen=True)
class LayerView:
    """What one layer sees.

    Attributes:
        label: 'PE' or 'layer 0' and so on.
        whole: (N, N), float32; smaller where the grid has more than `MOST_CELLS` tokens.
        row: one token's row of it on the grid, (rows, columns).
        numbers: as `describe_map` gives them.
    """

    label: str
    whole: np.ndarray
    row: np.ndarray
    numbers: dict[str, float]


@dataclass(frozen=True)
class PositionView:
    """What a model's layers see; ``token`` is the (row, column) that ``LayerView.row`` is of."""

    name: str
    kind: str
    grid: Grid
    token: Grid
    layers: list[LayerView]


def view_positions(
    model: VisionTransformer,
    name: str,
    size: Grid | None = None,
    token: Grid | None = None,
    layers: Sequence[int] = (),
) -> PositionView:
    """Computes the position correlation of a model.

    Args:
        name: What to call it.
        size: (height, width) in pixels of an image; by default, of the images that the PE is made for.
        token: (row, column) of the token to look at alone; by default the centre.
        layers: Which ones, counted from 0; all by default.

    Raises:
        ConfigError: There is no such layer or token, or no position embedding.
    """
    grid = token_grid(model, size)
    token = token or (grid[0] // 2, grid[1] // 2)
    strange = [layer for layer in layers if not 0 <= layer < model.num_layers]
    if strange:
        raise ConfigError(f'{name} has the layers 0 to {model.num_layers - 1}, not {strange[0]}')
    if not all(0 <= place < side for place, side in zip(token, grid)):
        raise ConfigError(f'{name} has a grid of {grid[0]} x {grid[1]} tokens, so there is no token {token}')
    wanted = {'PE', *(f'layer {layer}' for layer in layers or range(model.num_layers))}
    views = []
    for label, values in correlation_maps(model, grid):
        if label in wanted:
            row = values[token[0] * grid[1] + token[1]].reshape(grid)
            views.append(LayerView(label, _reduced(values), row, describe_map(values, grid)))
    return PositionView(name, BIAS if model.pe_type == 'rpe' else COSINE, grid, token, views)


def _reduced(values: np.ndarray) -> np.ndarray:
    values = values.astype(np.float32)
    if len(values) <= MOST_CELLS:
        return values
    return cv2.resize(values, (MOST_CELLS, MOST_CELLS), interpolation=cv2.INTER_AREA)


def describe_map(values: np.ndarray, grid: Grid) -> dict[str, float]:
    """What a map (N, N) shows, in numbers.

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

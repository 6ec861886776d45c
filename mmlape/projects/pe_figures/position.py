"""Position correlation by layer, from the live model (LaPE, ICCV 2023, section 3.4, Figures 1, 3, 4, I and II).

    s_ij = cos(p_i, p_j),   p: the PE of the patch tokens as a layer's attention sees it

For LaPE p is w_l; where PE and tokens share a norm it is that norm of the PE alone, which Eq. 6 of
the paper scales by a number a row, of which a cosine knows nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from scipy.stats import spearmanr
from torch import Tensor

from mmlape.console.figures import save_figure, wrapped
from mmlape.console.tables import console_table, text_table
from mmlape.console.terminal import console
from mmlape.errors import ConfigError
from mmlape.files import atomic_path
from mmlape.models.base.backbone import BaseBackbone
from mmlape.models.grid import Grid

COSINE, TERM = 'cosine similarity', 'relative bias, mean over heads'
MOST_ROWS = 256  # of a map, that the locality is computed from
MOST_CELLS = 1024  # a side, of a map that is kept


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


@torch.no_grad()
def pe_table(model: BaseBackbone, grid: Grid) -> Tensor:
    """Return the absolute PE before any layer, resized to a grid, (N, D); of several tables the first one."""
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
        maps = (cosines(rows) for rows in layer_positions(model, grid))
    elif model.position.inside:
        maps = (None if term is None else term.double().cpu().numpy() for term in shown_encodings(model, grid))
    else:
        raise ConfigError(f'{type(model).__name__} has no position encoding that can be drawn')
    grids = attended_grids(model, grid) if model.position.absolute is None else model.layer_grids(grid)
    for layer, (grid_of_layer, values) in enumerate(zip(grids, maps)):
        if values is None:
            raise ConfigError(
                f'{type(model).__name__}: nothing can be drawn of the position encodings of layer {layer}'
            )
        yield f'layer {layer}', grid_of_layer, values


@dataclass(frozen=True)
class LayerView:
    """What one layer sees."""

    label: str  # 'PE' or 'layer 0' and so on
    pairs: np.ndarray  # (N, N), float32; smaller where the grid has more than `MOST_CELLS` tokens
    row: np.ndarray  # one token's row of it on the layer's grid, (rows, columns)
    token: tuple[int, ...]  # the (row, column) of that token
    numbers: dict[str, float]  # as `describe_map` gives them


@dataclass(frozen=True)
class PositionView:
    """What a model's layers see.

    ``token`` is the (row, column) of the first grid that `LayerView.row` is of.
    """

    name: str
    measure: str
    grid: Grid
    token: Grid
    layers: list[LayerView]


def view_positions(
    model: BaseBackbone, name: str, size: Grid | None = None, token: Grid | None = None, layers: Sequence[int] = ()
) -> PositionView:
    """Compute the position correlation of a model.

    Args:
        model: The backbone.
        name: What to call it.
        size: (height, width) in pixels of an image; by default, of the images that the PE is made
            for.
        token: (row, column) of the token to look at alone, in later stages and windows that at the
            same share of their sides; by default the centre.
        layers: Which ones, counted from 0; all by default.

    Raises:
        ConfigError: If there is no such layer or token, or no position encoding.
    """
    grid = model.grid if size is None else model.grid_of(size)
    token = token or (grid[0] // 2, grid[1] // 2)
    unknown = [layer for layer in layers if not 0 <= layer < model.num_layers]
    if unknown:
        raise ConfigError(f'{name} has the layers 0 to {model.num_layers - 1}, not {unknown[0]}')
    if not all(0 <= place < side for place, side in zip(token, grid)):
        raise ConfigError(f'{name} has a grid of {grid[0]} x {grid[1]} tokens, so there is no token {token}')
    wanted = {'PE', *(f'layer {layer}' for layer in layers or range(model.num_layers))}
    views = []
    for label, grid_of_layer, values in correlation_maps(model, grid):
        if label in wanted:
            place = tuple(at * side // first for at, side, first in zip(token, grid_of_layer, grid))
            row = values[place[0] * grid_of_layer[1] + place[1]].reshape(grid_of_layer)
            pairs, side = values.astype(np.float32), MOST_CELLS
            if len(pairs) > side:
                pairs = cv2.resize(pairs, (side, side), interpolation=cv2.INTER_AREA)
            views.append(LayerView(label, pairs, row, place, describe_map(values, grid_of_layer)))
    return PositionView(name, TERM if model.position.absolute is None else COSINE, grid, token, views)


def describe_map(values: np.ndarray, grid: Grid) -> dict[str, float]:
    """Describe what a map (N, N) shows, in numbers.

    Returns:
        'mean' of all pairs of different tokens; 'beside' and 'above', the means of neighbours in a
        row and in a column (equal in a 2-D correlation, far apart in a 1-D one); 'locality',
        Spearman's correlation of a pair's value with its nearness, 1 where nearer always means more
        alike.
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
    of_others = values.sum() - np.trace(values)
    locality = np.nan
    if count > 2 and np.ptp(values[picks][pairs]) > 0:
        locality = float(-spearmanr(values[picks][pairs], distance[pairs]).statistic)
    return dict(
        mean=float(of_others / max(count * (count - 1), 1)),
        beside=float(square[right].mean()) if columns > 1 else np.nan,
        above=float(square[below].mean()) if rows > 1 else np.nan,
        locality=locality,
    )


COLOURS = 'viridis'
CELL = 1.45  # inches, of a map
GAP = 0.1  # between models, as a share of a map
NAME_WIDTH = 46  # characters of a model's name in a line
CHANNELS = ('red', 'green', 'blue')


def draw_positions(views: Sequence[PositionView], path: Path) -> Path:
    """Draw a row a layer, and two columns a model.

    The complete map, and one token's row of it on the grid. All cosines share one scale, and all
    biases another.
    """
    labels = list(dict.fromkeys(layer.label for view in views for layer in view.layers))
    widths = [1.0, 1.0] + [GAP, 1.0, 1.0] * (len(views) - 1)
    measures = list(dict.fromkeys(view.measure for view in views))
    width = CELL * sum(widths) + 0.9
    height = CELL * (len(labels) + 0.45) + 0.6 * len(measures)
    figure = Figure((width, height), layout='constrained')
    figure.get_layout_engine().set(w_pad=0.02, h_pad=0.02, wspace=0.0, hspace=0.0)
    axes = figure.subplots(len(labels), len(widths), squeeze=False, gridspec_kw=dict(width_ratios=widths))
    for ax in axes.flat:
        ax.set_axis_off()
    for measure in measures:
        shown = [view for view in views if view.measure == measure]
        values = [layer.row for view in shown for layer in view.layers]
        values += [layer.pairs for view in shown for layer in view.layers]
        top = 1.0 if measure == COSINE else max(part.max() for part in values)
        scale = Normalize(min(part.min() for part in values), top)
        for view in shown:
            place = 3 * views.index(view)
            image = _draw_view(axes[:, place : place + 2], view, labels, scale)
        figure.colorbar(
            image, ax=axes, location='bottom', label=measure, fraction=0.02, aspect=40, shrink=0.6, pad=0.005
        )
    return save_figure(figure, path)


def _draw_view(axes: np.ndarray, view: PositionView, labels: list[str], scale: Normalize):
    axes[0, 0].set_title(f'{wrapped(view.name, NAME_WIDTH)}\nall pairs', fontsize=7.5, loc='left')
    axes[0, 1].set_title(f'token {view.token[0]}, {view.token[1]}', fontsize=7.5, loc='left')
    for layer in view.layers:
        left, right = axes[labels.index(layer.label)]
        for ax, values in ((left, layer.pairs), (right, layer.row)):
            ax.set_axis_on()
            image = _image(ax, values, norm=scale)
        left.set_ylabel(layer.label, fontsize=9)
        right.plot(layer.token[1], layer.token[0], marker='+', ms=5, mew=0.8, color='crimson')
    return image


def draw_tables(tables: dict[str, np.ndarray], path: Path) -> Path:
    """Draw PE tables (N, D) by name as heat maps, each on its own scale.

    Tokens downwards, channels to the right.
    """
    figure = Figure((0.6 + 4.6 * len(tables), 4.2), layout='constrained')
    for ax, (name, table) in zip(figure.subplots(1, len(tables), squeeze=False)[0], tables.items()):
        limit = np.abs(table).max()
        image = ax.imshow(table, cmap='RdBu_r', vmin=-limit, vmax=limit, aspect='auto', interpolation='nearest')
        ax.set_title(wrapped(name, 60), fontsize=9)
        ax.set(xlabel='channel', ylabel='token')
        figure.colorbar(image, ax=ax, fraction=0.04)
    return save_figure(figure, path)


def draw_scales(scales: dict[str, np.ndarray], path: Path) -> Path:
    """Draw the scales of Dual PatchNorm's first norm, (C, P, P) by name, as an image a channel (DPN, Figure 3).

    Each channel has a scale of its own, as their magnitudes differ.
    """
    columns = max(len(scale) for scale in scales.values())
    figure = Figure((0.8 + 2.5 * columns, 0.3 + 2.3 * len(scales)), layout='constrained')
    axes = figure.subplots(len(scales), columns, squeeze=False)
    for row, (name, scale) in zip(axes, scales.items()):
        for number, (ax, values) in enumerate(zip(row, scale)):
            image = _image(ax, values)
            ax.set_title(CHANNELS[number] if len(scale) == 3 else f'channel {number}', fontsize=9)
            figure.colorbar(image, ax=ax, fraction=0.046)
        row[0].set_ylabel(wrapped(name, 30), fontsize=8)
    return save_figure(figure, path)


def _image(ax: Axes, values: np.ndarray, **options):
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
    return ax.imshow(values, cmap=COLOURS, **options)


def write_figures(
    models: Mapping[str, BaseBackbone],
    out: Path,
    size: Grid | None = None,
    token: Grid | None = None,
    layers: Sequence[int] = (),
) -> tuple[list[PositionView], list[Path]]:
    """Draw models side by side; ``size``, ``token`` and ``layers`` as `view_positions` takes them.

    Returns:
        The numbers, and the files written: ``position_correlation.png``, ``pe_table.png``,
        ``patch_norm.png`` where a model has such a norm, and ``position.npz``.
    """
    views = [view_positions(model, name, size, token, layers) for name, model in models.items()]
    files = [draw_positions(views, out / 'position_correlation.png')]
    tables = {
        view.name: pe_table(model, view.grid).cpu().numpy()
        for view, model in zip(views, models.values())
        if model.position.absolute is not None
    }
    if tables:
        files.append(draw_tables(tables, out / 'pe_table.png'))
    stems = {name: model.patch_embed for name, model in models.items() if hasattr(model, 'patch_embed')}
    scales = {
        name: stem.norm0.weight.detach().unflatten(0, (-1, stem.patch_size, stem.patch_size)).cpu().numpy()
        for name, stem in stems.items()
        if getattr(stem.norm0, 'weight', None) is not None
    }
    if scales:
        files.append(draw_scales(scales, out / 'patch_norm.png'))
    files.append(out / 'position.npz')
    with atomic_path(files[-1]) as partial:
        np.savez_compressed(partial, **_arrays(views, tables, scales))
    return views, files


def _arrays(views: Sequence[PositionView], tables: dict, scales: dict) -> dict[str, np.ndarray]:
    """Name arrays ``<number of the model>/<what>``; complete maps of big grids are left out."""
    arrays = {}
    for number, view in enumerate(views):
        arrays[f'{number}/name'] = np.array(view.name)
        arrays[f'{number}/labels'] = np.array([layer.label for layer in view.layers])
        # (L, rows, columns)
        arrays |= _stacked(f'{number}/rows', [layer.row for layer in view.layers])
        if view.grid[0] * view.grid[1] <= MOST_CELLS:
            # (L, N, N)
            arrays |= _stacked(f'{number}/maps', [layer.pairs for layer in view.layers])
        for key in view.layers[0].numbers:
            arrays[f'{number}/{key}'] = np.array([layer.numbers[key] for layer in view.layers])
        for what, named in (('table', tables), ('patch_norm', scales)):
            if view.name in named:
                arrays[f'{number}/{what}'] = named[view.name]
    return arrays


def _stacked(name: str, parts: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    """Stack arrays under a name.

    Those of several shapes (stages) under the name and the number of each.
    """
    if len({part.shape for part in parts}) == 1:
        return {name: np.stack(parts)}
    return {f'{name}/{number}': part for number, part in enumerate(parts)}


def numbers_table(views: Sequence[PositionView]) -> None:
    """Print the numbers of each layer, see `describe_map`."""
    out = console()
    for view in views:
        rows, columns = view.grid
        keys = ('mean', 'beside', 'above', 'locality')
        numbers = [(layer.label, *(f'{layer.numbers[key]:.3f}' for key in keys)) for layer in view.layers]
        table = text_table(('', 'all pairs', 'neighbours in a row', 'in a column', 'locality'), numbers)
        out.print(console_table(table, f'{view.name}: {view.measure} on {rows} x {columns} tokens'))
    out.print(
        'locality: how well nearness orders the pairs (Spearman); 1 means that nearer tokens are always more alike'
    )

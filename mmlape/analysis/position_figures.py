"""Figures of position correlation by layer, of PE tables, and of the stem in pixel space."""

import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from mmlape.analysis.position import COSINE, MOST_CELLS, PositionView, pe_table, token_grid, view_positions
from mmlape.console import console
from mmlape.models.base.backbone import BaseBackbone
from mmlape.models.grid import Grid
from mmlape.tables import console_table, text_table

COLOURS = 'viridis'
CELL = 1.45  # inches, of a map
GAP = 0.1  # between models, as a share of a map
NAME_WIDTH = 46  # characters of a model's name in a line
CHANNELS = ('red', 'green', 'blue')


def draw_positions(views: Sequence[PositionView], path: str | Path) -> None:
    """Draw a row a layer, and two columns a model: the complete map, and one token's row of it on the grid.

    All cosines share one scale, and all biases another.
    """
    labels = list(dict.fromkeys(layer.label for view in views for layer in view.layers))
    widths = [1.0, 1.0] + [GAP, 1.0, 1.0] * (len(views) - 1)
    kinds = list(dict.fromkeys(view.kind for view in views))
    figure = Figure((CELL * sum(widths) + 0.9, CELL * (len(labels) + 0.45) + 0.6 * len(kinds)), layout='constrained')
    figure.get_layout_engine().set(w_pad=0.02, h_pad=0.02, wspace=0.0, hspace=0.0)
    axes = figure.subplots(len(labels), len(widths), squeeze=False, gridspec_kw=dict(width_ratios=widths))
    for ax in axes.flat:
        ax.set_axis_off()
    for kind in kinds:
        shown = [view for view in views if view.kind == kind]
        values = [layer.row for view in shown for layer in view.layers]
        values += [layer.pairs for view in shown for layer in view.layers]
        top = 1.0 if kind == COSINE else max(part.max() for part in values)
        scale = Normalize(min(part.min() for part in values), top)
        for view in shown:
            place = 3 * views.index(view)
            image = _draw_view(axes[:, place : place + 2], view, labels, scale)
        figure.colorbar(image, ax=axes, location='bottom', label=kind, fraction=0.02, aspect=40, shrink=0.6, pad=0.005)
    _save(figure, path)


def _draw_view(axes: np.ndarray, view: PositionView, labels: list[str], scale: Normalize):
    by_label = {layer.label: layer for layer in view.layers}
    name = '\n'.join(textwrap.wrap(view.name, NAME_WIDTH, break_on_hyphens=False))
    axes[0, 0].set_title(f'{name}\nall pairs', fontsize=7.5, loc='left')
    axes[0, 1].set_title(f'token {view.token[0]}, {view.token[1]}', fontsize=7.5, loc='left')
    image = None
    for row, label in enumerate(labels):
        layer = by_label.get(label)
        if layer is None:
            continue
        for ax, values in zip(axes[row], (layer.pairs, layer.row)):
            ax.set_axis_on()
            image = _image(ax, values, norm=scale)
        axes[row, 0].set_ylabel(label, fontsize=9)
        axes[row, 1].plot(layer.token[1], layer.token[0], marker='+', ms=5, mew=0.8, color='crimson')
    return image


def draw_tables(tables: dict[str, np.ndarray], path: str | Path) -> None:
    """Draw PE tables (N, D) by name as heat maps, each on its own scale: tokens downwards, channels to the right."""
    figure = Figure((0.6 + 4.6 * len(tables), 4.2), layout='constrained')
    for ax, (name, table) in zip(figure.subplots(1, len(tables), squeeze=False)[0], tables.items()):
        limit = np.abs(table).max()
        image = ax.imshow(table, cmap='RdBu_r', vmin=-limit, vmax=limit, aspect='auto', interpolation='nearest')
        ax.set_title(name, fontsize=9)
        ax.set(xlabel='channel', ylabel='token')
        figure.colorbar(image, ax=ax, fraction=0.04)
    _save(figure, path)


def draw_scales(scales: dict[str, np.ndarray], path: str | Path) -> None:
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
        row[0].set_ylabel('\n'.join(textwrap.wrap(name, 26, break_on_hyphens=False)), fontsize=8)
    _save(figure, path)


def draw_filters(filters: np.ndarray, name: str, path: str | Path) -> None:
    """Draw the stem's filters (D, 3, P, P) as small colour images, each stretched to its own range."""
    columns = math.ceil(math.sqrt(1.6 * len(filters)))
    rows = math.ceil(len(filters) / columns)
    side = filters.shape[-1] + 1
    sheet = np.ones((rows * side - 1, columns * side - 1, 3))
    for number, values in enumerate(filters):
        row, column = divmod(number, columns)
        spread = max(np.ptp(values), 1e-12)
        image = ((values - values.min()) / spread).transpose(1, 2, 0)
        sheet[row * side : (row + 1) * side - 1, column * side : (column + 1) * side - 1] = image
    figure = Figure((9, 9 * rows / columns + 0.4), layout='constrained')
    ax = figure.subplots()
    _image(ax, sheet)
    ax.set_title(f'{name}: {len(filters)} filters of the patch embedding', fontsize=9)
    _save(figure, path)


def _image(ax: Axes, values: np.ndarray, **options):
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
    return ax.imshow(values, cmap=COLOURS, **options)


def _save(figure: Figure, path: str | Path) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def write_figures(
    models: Mapping[str, BaseBackbone],
    out: Path,
    size: Grid | None = None,
    token: Grid | None = None,
    layers: Sequence[int] = (),
) -> tuple[list[PositionView], list[Path]]:
    """Draw models side by side; ``size``, ``token`` and ``layers`` as `view_positions` takes them.

    Returns:
        The numbers, and the files written: ``position_correlation.png``, ``pe_table.png``, ``patch_norm.png`` where
        a model has such a norm, ``filters_*.png``, and ``position.npz``.
    """
    views = [view_positions(model, name, size, token, layers) for name, model in models.items()]
    files = [out / 'position_correlation.png']
    draw_positions(views, files[0])
    tables = {
        name: pe_table(model, token_grid(model, size)).cpu().numpy()
        for name, model in models.items()
        if model.position.absolute is not None
    }
    if tables:
        files.append(out / 'pe_table.png')
        draw_tables(tables, files[-1])
    stems = {name: model.patch_embed for name, model in models.items() if hasattr(model, 'patch_embed')}
    scales = {
        name: stem.norm0.weight.detach().unflatten(0, (-1, stem.patch_size, stem.patch_size)).cpu().numpy()
        for name, stem in stems.items()
        if getattr(stem.norm0, 'weight', None) is not None
    }
    if scales:
        files.append(out / 'patch_norm.png')
        draw_scales(scales, files[-1])
    for number, (name, stem) in enumerate(stems.items()):
        if stem.proj.in_channels == 3:
            files.append(out / f'filters_{number}.png')
            draw_filters(stem.proj.weight.detach().cpu().numpy(), name, files[-1])
    files.append(out / 'position.npz')
    np.savez_compressed(files[-1], **_arrays(views, tables, scales))
    return views, files


def _arrays(views: Sequence[PositionView], tables: dict, scales: dict) -> dict[str, np.ndarray]:
    """Name arrays ``<number of the model>/<what>``; complete maps of big grids are left out."""
    arrays = {}
    for number, view in enumerate(views):
        arrays[f'{number}/name'] = np.array(view.name)
        arrays[f'{number}/labels'] = np.array([layer.label for layer in view.layers])
        arrays |= _stacked(f'{number}/rows', [layer.row for layer in view.layers])  # (L, rows, columns)
        if view.grid[0] * view.grid[1] <= MOST_CELLS:
            arrays |= _stacked(f'{number}/maps', [layer.pairs for layer in view.layers])  # (L, N, N)
        for key in view.layers[0].numbers:
            arrays[f'{number}/{key}'] = np.array([layer.numbers[key] for layer in view.layers])
        for what, named in (('table', tables), ('patch_norm', scales)):
            if view.name in named:
                arrays[f'{number}/{what}'] = named[view.name]
    return arrays


def _stacked(name: str, parts: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    """Stack arrays under a name; those of several shapes (stages) under the name and the number of each."""
    if len({part.shape for part in parts}) == 1:
        return {name: np.stack(parts)}
    return {f'{name}/{number}': part for number, part in enumerate(parts)}


def numbers_table(views: Sequence[PositionView]) -> None:
    """Print the numbers of each layer, see `describe_map`."""
    out = console()
    for view in views:
        rows, columns = view.grid
        numbers = [
            (layer.label, *(f'{layer.numbers[key]:.3f}' for key in ('mean', 'beside', 'above', 'locality')))
            for layer in view.layers
        ]
        table = text_table(('', 'all pairs', 'neighbours in a row', 'in a column', 'locality'), numbers)
        out.print(console_table(table, f'{view.name}: {view.kind} on {rows} x {columns} tokens'))
    out.print(
        'locality: how well nearness orders the pairs (Spearman); 1 means that nearer tokens are always more alike'
    )

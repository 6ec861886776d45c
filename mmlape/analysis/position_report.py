"""Everything that `mmlape visualize-pe` writes and prints, from models to files."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from mmlape.analysis.position import MOST_CELLS, PositionView, pe_table, token_grid, view_positions
from mmlape.analysis.position_figures import draw_filters, draw_positions, draw_scales, draw_tables
from mmlape.analysis.subjects import Subject
from mmlape.console import console
from mmlape.models.grid import Grid
from mmlape.tables import console_table, text_table


def write_figures(
    subjects: Sequence[Subject],
    out: Path,
    size: Grid | None = None,
    token: Grid | None = None,
    layers: Sequence[int] = (),
) -> tuple[list[PositionView], list[Path]]:
    """Draw models side by side.

    Args:
        subjects: The models.
        out: Folder of the images.
        size: As `view_positions` takes it.
        token: As `view_positions` takes it.
        layers: As `view_positions` takes them.

    Returns:
        The numbers, and the files written: ``position_correlation.png``, ``pe_table.png``, ``patch_norm.png`` where
        a model has such a norm, ``filters_*.png``, and ``position.npz``.
    """
    views = [view_positions(subject.model, subject.name, size, token, layers) for subject in subjects]
    files = [out / 'position_correlation.png']
    draw_positions(views, files[0])
    models = {subject.name: subject.model for subject in subjects}
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

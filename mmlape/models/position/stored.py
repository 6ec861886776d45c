"""A stored table of an absolute PE, taken to the tokens and the grid of a model."""

from typing import NamedTuple

import torch
from torch import Tensor

from mmlape.checkpoint.loading import LoadReport
from mmlape.errors import CheckpointError
from mmlape.models.layers.grid import Grid, square_grid
from mmlape.models.position.base import AbsolutePosition


class TablePlace(NamedTuple):
    """What a model needs of a table.

    Attributes:
        kind: The kind of PE.
        grid: Grid of its rows for patches.
        tokens: Prefix tokens that it has rows for.
        required: Whether those rows must be in the file; else missing ones are zero.
        interpolate_mode: Of resizing.
    """

    kind: AbsolutePosition
    grid: Grid
    tokens: tuple[str, ...]
    required: bool
    interpolate_mode: str


def stored_grid(table: Tensor, name: str, tokens: tuple[str, ...], grid: Grid | None, path: str) -> Grid:
    """Return the grid of a stored table (1, rows, D).

    Args:
        table: The table.
        name: Its name.
        tokens: Prefix tokens that it has rows for.
        grid: What the user says; None for a square.
        path: The file.

    Raises:
        CheckpointError: If the rows are not those of ``grid``, or of no square.
    """
    patches = table.shape[1] - len(tokens)
    found = grid or square_grid(patches)
    if found is None:
        raise CheckpointError(
            f'checkpoint {path}: {name} has {patches} rows beside those of {tokens or "no prefix token"}, which is no '
            'square grid; pass grid=(rows, columns) in init_cfg'
        )
    if found[0] * found[1] != patches:
        raise CheckpointError(
            f'checkpoint {path}: {name} has {patches} patch rows, which is not the grid {found[0]}x{found[1]}'
        )
    return found


def with_batch_axis(table: Tensor) -> Tensor:
    """Return a table as (1, rows, D); the public 1-D sinusoids have no batch axis."""
    return table[None] if table.ndim == 2 else table


def fit_table(
    table: Tensor, name: str, stored: tuple[str, ...], grid: Grid | None, place: TablePlace, report: LoadReport
) -> Tensor:
    """Return the rows of a model's prefix tokens, then the patches resized to its grid, (1, rows, D).

    Args:
        table: (rows, D) or (1, rows, D).
        name: Its name.
        stored: Prefix tokens that it has rows for.
        grid: Its grid; None for a square.
        place: What the model needs.
        report: Gets what is dropped, resized and missing.

    Raises:
        CheckpointError: As ``stored_grid``.
    """
    table = with_batch_axis(table)
    source = stored_grid(table, name, stored, grid, report.path)
    if not place.kind.matches(table, source, len(stored)):
        report.problems.append(f'wrong PE: {name} is not the table of pe_type={place.kind.name!r}')
    resized = place.kind.resize(table, source, place.grid, len(stored), place.interpolate_mode)
    if source != place.grid:
        report.resized[name] = f'{source[0]}x{source[1]} -> {place.grid[0]}x{place.grid[1]}'
    rows = {token: resized[:, i : i + 1] for i, token in enumerate(stored)}
    missing = [token for token in place.tokens if token not in rows]
    if missing and place.required:
        report.problems.append(f'missing: the rows of {", ".join(missing)} in {name}')
    zeros = resized.new_zeros(1, 1, resized.shape[2])
    report.dropped += [f'{name}[{token}]' for token in stored if token not in place.tokens]
    prefix = [rows.get(token, zeros) for token in place.tokens]
    return torch.cat((*prefix, resized[:, len(stored) :]), dim=1)

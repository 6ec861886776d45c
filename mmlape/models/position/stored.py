"""A stored table of an absolute PE, taken to the tokens and the grid of a model."""

from typing import NamedTuple

import torch
from torch import Tensor

from mmlape.checkpoint.loading import LoadReport
from mmlape.errors import CheckpointError
from mmlape.models.grid import Grid, square_grid
from mmlape.models.position.base import AbsolutePosition


class TablePlace(NamedTuple):
    """What a model needs of a table.

    Attributes:
        kind: The kind of PE.
        grid: Grid of its rows for patches.
        tokens: Prefix tokens that it has rows for, and how many each.
        used: Whether those tokens run along.
        interpolate_mode: Of resizing.
    """

    kind: AbsolutePosition
    grid: Grid
    tokens: dict[str, int]
    used: bool
    interpolate_mode: str


def infer_grid(table: Tensor, name: str, tokens: dict[str, int], grid: Grid | None, path: str) -> Grid:
    """Return the grid of a stored table (1, rows, D).

    Args:
        table: The table.
        name: Its name.
        tokens: Prefix tokens that it has rows for, and how many each.
        grid: What the user says; None for a square.
        path: The file.

    Raises:
        CheckpointError: If the rows are not those of ``grid``, or of no square.
    """
    patches = table.shape[1] - sum(tokens.values())
    found = grid or square_grid(patches)
    if found is None:
        raise CheckpointError(
            f'checkpoint {path}: {name} has {patches} rows beside those of {", ".join(tokens) or "no prefix token"}, '
            'which is no square grid; pass grid=(rows, columns) in init_cfg'
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
    table: Tensor,
    name: str,
    stored: dict[str, int],
    grid: Grid | None,
    place: TablePlace,
    report: LoadReport,
    recorded: bool = False,
) -> Tensor:
    """Return the rows of a model's prefix tokens, then the patches resized to its grid, (1, rows, D).

    Tokens without a row get one of zeros, which is what no row means where the PE is added to the tokens.

    Args:
        table: (rows, D) or (1, rows, D).
        name: Its name.
        stored: Prefix tokens that it has rows for, and how many each.
        grid: Its grid; None for a square.
        place: What the model needs.
        report: Gets what is dropped, resized and new.
        recorded: Whether the file records this kind, so that it may have been resized.

    Raises:
        CheckpointError: As ``infer_grid``.
    """
    table = with_batch_axis(table)
    source = infer_grid(table, name, stored, grid, report.path)
    num_prefix = sum(stored.values())
    if not recorded and not place.kind.matches(table, source, num_prefix):
        report.problems.append(
            f'wrong PE: {name} is not the table of pe_type={place.kind.name!r} on a grid of {source[0]}x{source[1]}; '
            "if it was resized, as T2T-ViT's public code does for other images, pe_type='learnable' takes it as it is"
        )
    resized = place.kind.resize(table, source, place.grid, num_prefix, place.interpolate_mode)
    if source != place.grid:
        report.resized[name] = f'{source[0]}x{source[1]} -> {place.grid[0]}x{place.grid[1]}'
    rows = dict(zip(stored, resized[:, :num_prefix].split(list(stored.values()), dim=1)))
    report.dropped += [f'{name}[{token}]' for token in stored if token not in place.tokens]
    prefix = []
    for token, count in place.tokens.items():
        if token not in rows and place.used:
            report.new.append(f'{name}[{token}] (zeros)')
        prefix.append(rows.get(token, resized.new_zeros(1, count, resized.shape[2])))
    return torch.cat((*prefix, resized[:, num_prefix:]), dim=1)

"""How the rows of a stored table of position encodings are read: one decision for all models, and no guess.

The grid is what the file records, or its user says; else the model's own, where the rows fit it; else a square. A
square without the rows that such tokens usually have is as good a reading as those rows and a grid that nothing
tells: which of both it is, the user says.
"""

from collections.abc import Sequence
from typing import NamedTuple

from mmlape.errors import CheckpointError
from mmlape.models.grid import Grid, square_grid

Tokens = dict[str, int]
"""The tokens before the patches that have rows of a table, and how many each."""


class Reading(NamedTuple):
    """What the rows of a table are."""

    tokens: Tokens
    grid: Grid


def read_rows(
    rows: int,
    tokens: Sequence[Tokens],
    recorded: Sequence[Grid],
    own: Sequence[Grid],
    table: str,
    remedy: str = 'grid=(rows, columns)',
) -> Reading:
    """Return what so many rows are.

    Args:
        rows: Of the table.
        tokens: The tokens that they can begin with; the usual ones first.
        recorded: The grid that is known, if one is; more than one where tables can have several sizes.
        own: That of the model, if there is one.
        table: The file and the name of the table, for messages.
        remedy: What says the grid, for messages.

    Raises:
        CheckpointError: If nothing fits, or two readings do.
    """
    for grid in recorded or own:
        for of_table in tokens:
            if rows == sum(of_table.values()) + grid[0] * grid[1]:
                return Reading(of_table, grid)
    if recorded:
        patches = ' or '.join(str(rows - sum(of_table.values())) for of_table in tokens)
        raise CheckpointError(f'{table} has {patches} patch rows, which is not the grid {_spelt(recorded[0])}')
    readings = [(of_table, square_grid(rows - sum(of_table.values()))) for of_table in tokens]
    squares = [Reading(of_table, grid) for of_table, grid in readings if grid]
    if len(squares) == 1 and squares[0].tokens == tokens[0]:
        return squares[0]
    possible = [
        f'{_spelt(grid) if grid else f"{rows - sum(of_table.values())} (no square grid)"} patches beside '
        f'{", ".join(of_table) or "no token"}'
        for of_table, grid in readings
        if grid or of_table == tokens[0]
    ]
    raise CheckpointError(f'{table} has {rows} rows, of {" or ".join(possible)}: say which by {remedy}')


def _spelt(grid: Grid) -> str:
    return f'{grid[0]}x{grid[1]}'

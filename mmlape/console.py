"""The console that tables are printed on."""

from rich.console import Console

WIDTH = 160
"""Columns in a file or a pipe, where a table must not be wrapped at 80."""


def console(**options) -> Console:
    """Build a console as wide as the terminal, or ``WIDTH`` columns where there is none.

    Args:
        **options: Of rich's ``Console``.
    """
    found = Console(**options)
    return found if found.is_terminal else Console(width=WIDTH, **options)

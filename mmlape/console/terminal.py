"""The console that tables are printed on, and durations as text."""

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


def clock(seconds: float) -> str:
    """Return a duration as h:mm:ss; hours go beyond a day."""
    minutes, rest = divmod(round(seconds), 60)
    return f'{minutes // 60}:{minutes % 60:02}:{rest:02}'


def file_size(count: float) -> str:
    """Return a number of bytes in the unit that leaves one to three digits before the point: '11.9 MB'."""
    for unit in ('B', 'kB', 'MB', 'GB'):
        if count < 999.5:
            return f'{count:.3g} {unit}'
        count /= 1000
    return f'{count:.3g} TB'

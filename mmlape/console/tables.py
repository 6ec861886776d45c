"""Tables for every reader: frames of text, written as Markdown, HTML, LaTeX and for the terminal.

The index of a frame holds its columns of text, the first ones of a row; the columns right of them
are numbers, which are aligned to the right.

Control codes in cells are written out: names come from files and folders of others.
"""

import html
import itertools
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from rich.progress_bar import ProgressBar
from rich.table import Table as ConsoleTable
from rich.text import Text

from mmlape.console.quiet import printable
from mmlape.console.terminal import console
from mmlape.files import atomic_path

_MARKDOWN = str.maketrans({character: f'\\{character}' for character in '\\`*_[]<>|$'})
_LATEX = {'\\': r'\textbackslash{}', '~': r'\textasciitilde{}', '^': r'\textasciicircum{}', '_': r'\_\allowbreak{}'}
_LATEX |= {character: f'\\{character}' for character in '&%$#{}'}
_LATEX |= {'–': '--', '−': '$-$', '±': r'$\pm$', '<': '$<$', '>': '$>$', '→': r'$\rightarrow$', '×': r'$\times$'}
_FITTED = r'\centering\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}'


def text_table(columns: Sequence[str], rows: Iterable[Sequence], text_columns: int = 1) -> pd.DataFrame:
    """Build a table of text.

    Args:
        columns: Its header.
        rows: As long as ``columns``.
        text_columns: How many columns at the left are text.
    """
    frame = pd.DataFrame(list(rows), columns=list(columns), dtype=object)
    return frame.set_index(list(columns[:text_columns]))


def rows_of(frame: pd.DataFrame) -> list[tuple[str, ...]]:
    """Return the rows of a table, columns of text first."""
    return list(frame.reset_index().itertuples(index=False, name=None))


def header_of(frame: pd.DataFrame) -> list[str]:
    """Return the header of a table, those of text first."""
    return [*frame.index.names, *frame.columns]


def markdown_text(text: str) -> str:
    """Escape text for Markdown."""
    return printable(text).translate(_MARKDOWN)


def markdown_table(frame: pd.DataFrame) -> str:
    """Return a table as Markdown."""
    rule = ['---'] * frame.index.nlevels + ['---:'] * len(frame.columns)
    header, *rows = ([markdown_text(str(cell)) for cell in row] for row in (header_of(frame), *rows_of(frame)))
    return '\n'.join(f'| {" | ".join(row)} |' for row in (header, rule, *rows))


def html_table(frame: pd.DataFrame) -> str:
    """Return a table as HTML of the class ``text<N>``, N being the number of its columns of text.

    Text that a row shares with the one above, column by column up to the first difference, is not
    repeated.
    """
    flat = frame.reset_index().map(lambda cell: html.escape(printable(str(cell))))
    text = flat.iloc[:, : frame.index.nlevels]
    flat[text.columns] = text.mask(text.eq(text.shift()).cummin(axis=1), '')
    flat.columns = [html.escape(name) for name in flat.columns]
    with pd.option_context('display.max_colwidth', None):  # else pandas cuts long cells
        return flat.to_html(index=False, escape=False, border=0, justify='left', classes=f'text{frame.index.nlevels}')


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[Sequence]) -> None:
    """Write rows as CSV; text that a spreadsheet would take for a formula gets an apostrophe before it."""
    frame = pd.DataFrame([[_csv_cell(cell) for cell in row] for row in rows], columns=list(columns))
    with atomic_path(path) as partial:
        frame.to_csv(partial, index=False, errors='backslashreplace')


def _csv_cell(cell: object) -> object:
    if not isinstance(cell, str):
        return cell
    return printable(f"'{cell}" if cell.startswith(('=', '@', '+', '-', '\t', '\r')) else cell)


def latex_text(text: str) -> str:
    """Escape text for LaTeX; letters that an ordinary preamble does not know become question marks."""
    return ''.join(_LATEX.get(letter, letter if _is_latin(letter) else '?') for letter in text)


def _is_latin(letter: str) -> bool:
    """Return whether a letter is ASCII, or a Latin letter with an accent, which TeX composes."""
    accented = ord(letter) < 0x180 and unicodedata.decomposition(letter)[:1] not in ('', '<')
    return letter.isprintable() and (letter.isascii() or accented)


def latex_table(frame: pd.DataFrame, caption: str) -> str:
    """Return a table as a float with booktabs' rules, scaled down where it is wider than the page."""
    flat = frame.reset_index().map(lambda cell: latex_text(str(cell)))
    flat.columns = [latex_text(name) for name in flat.columns]
    columns = r'>{\raggedright\arraybackslash}p{0.3\linewidth}' + 'l' * (frame.index.nlevels - 1)
    columns += 'r' * len(frame.columns)
    text = flat.to_latex(index=False, caption=latex_text(caption), column_format=columns, position='ht')
    return text.replace('\\begin{tabular}', f'{_FITTED}{{%\n\\begin{{tabular}}').replace(
        '\\end{tabular}', '\\end{tabular}}'
    )


def console_table(
    frame: pd.DataFrame,
    title: str | None = None,
    sections: int = 0,
    styles: Mapping[str, str] | None = None,
    header: bool = True,
    whole: bool = False,
) -> ConsoleTable:
    """Build a table for the terminal.

    Args:
        frame: The table.
        title: Its title.
        sections: A line stands between rows that differ in so many of the first columns; none for 0.
        styles: Rich's style of cells that have this text.
        header: Whether to show the names of the columns.
        whole: Whether the first cells are not wrapped, to be copied.
    """
    table = ConsoleTable(title=None if title is None else Text(printable(title)), show_header=header)
    for place, head in enumerate(header_of(frame)):
        table.add_column(head, justify='left' if place < frame.index.nlevels else 'right', overflow='fold')
    table.columns[0].no_wrap = whole
    for _, section in itertools.groupby(rows_of(frame), key=lambda row: row[:sections]):
        for row in section:
            table.add_row(*(_console_cell(cell, styles or {}) for cell in row))
        table.add_section()
    return table


def _console_cell(cell: Any, styles: Mapping[str, str]) -> ProgressBar | Text:
    return cell if isinstance(cell, ProgressBar) else Text(printable(str(cell)), styles.get(cell, ''))


def print_table(frame: pd.DataFrame, title: str | None = None, **options) -> None:
    """Print a table; title and options are those of `console_table`."""
    console().print(console_table(frame, title, **options))

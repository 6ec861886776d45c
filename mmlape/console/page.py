"""Sections of text, tables and figures as one HTML page that needs nothing else.

Reports and tests are written so.
"""

import base64
import mimetypes
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from mmlape.console.quiet import printable
from mmlape.console.tables import html_table
from mmlape.files import write_text


class Element(NamedTuple):
    """An element of a page, below one of its headings; what it shows follows from the type of its content.

    Attributes:
        content: A text, a table, the file of a figure, lines (warnings, if they have a caption), or the elements that
            a caption stands for until it is opened.
        open: Whether these are shown at first.
    """

    content: str | pd.DataFrame | Path | Sequence['str | Element']
    caption: str = ''
    open: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether it shows nothing: whoever makes a page leaves it out before it is written."""
        return not isinstance(self.content, Path) and not len(self.content)


def write_page(title: str, sections: Mapping[str, Sequence[Element]], open: Collection[str], path: Path) -> Path:
    """Write a page; Jinja escapes names, and images are inside.

    Args:
        title: Of the page.
        sections: The elements of each by its title, which the first one lacks.
        open: Titles of the sections that are shown at once.
        path: The file.
    """
    environment = Environment(
        finalize=_printable, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters['table'] = lambda frame: Markup(html_table(frame))
    environment.filters['data_uri'] = data_uri
    environment.tests['table'] = lambda content: isinstance(content, pd.DataFrame)
    environment.tests['figure'] = lambda content: isinstance(content, Path)
    template = environment.from_string(Path(__file__).with_name('page.html').read_text(encoding='utf-8'))
    return write_text(path, template.render(title=title, sections=sections, open=open))


def _printable(value: Any) -> Any:
    return printable(value) if type(value) is str else value


def data_uri(path: Path) -> str:
    """Return an image file as a `data:` address."""
    media_type = mimetypes.guess_type(path)[0] or 'application/octet-stream'
    return f'data:{media_type};base64,{base64.b64encode(path.read_bytes()).decode()}'

"""What figures of runs have in common: looks that tell arms apart, names that fit, axes, and files.

Colours are Okabe and Ito's, which colour-blind readers can tell apart.
"""

import io
import re
import textwrap
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mmlape.files import atomic_path

COLOURS = ('#0072B2', '#D55E00', '#009E73', '#CC79A7', '#56B4E9', '#E69F00', '#000000', '#8A6D00')
_STYLES = ('-', '--', '-.', ':')
_MARKERS = 'os^DvPX<>ph'


def look(place: int, baseline: bool = False) -> dict:
    """Return Matplotlib's options of the arm at a place; a baseline's line is thick.

    No two of 88 share both colour and marker, and neighbours have different line styles.
    """
    colours, ls = len(COLOURS), _STYLES[(place + place // len(COLOURS)) % len(_STYLES)]
    marker = _MARKERS[place % len(_MARKERS)]
    return dict(color=COLOURS[place % colours], ls=ls, marker=marker, ms=5, lw=3.2 if baseline else 1.6)


def wrapped(name: str, width: int) -> str:
    """Break a name into lines of at most ``width`` characters, at its separators where it has any.

    Dollars are escaped, as Matplotlib would read mathematics between them.
    """
    wrapper = textwrap.TextWrapper(width)
    wrapper.wordsep_re = re.compile(r'(?<=[_/@+,;-])|(\s+)')
    return '\n'.join(wrapper.wrap(name)).replace('$', r'\$')


def new_axes(size: tuple[float, float]) -> tuple[Figure, Axes]:
    """Return a figure of a size in inches, and its axes."""
    figure = Figure(figsize=size, layout='constrained')
    axes = figure.subplots()
    tidy(axes)
    return figure, axes


def tidy(*every: Axes) -> None:
    """Draw a grid behind the curves, and no frame at the top and at the right."""
    for axes in every:
        axes.grid(alpha=0.3)
        axes.set_axisbelow(True)
        axes.spines[['top', 'right']].set_visible(False)


def from_zero(axes: Axes, names: str) -> None:
    """Begin axes ('x', 'y' or 'xy') at zero where all that is drawn is above, so that nothing is cut."""
    for name, low in zip('xy', axes.dataLim.min):
        if name in names and low > 0:
            axes.set(**{f'{name}lim': (0, None)})


def save_figure(figure: Figure, path: Path) -> Path:
    """Write a figure in the format of the suffix, an SVG with a PDF beside it; the same content has the same files."""
    fonts = {'svg.hashsalt': 'mmlape', 'svg.fonttype': 'path', 'pdf.fonttype': 42}  # 42: journals refuse Type 3
    for suffix in ('.svg', '.pdf') if path.suffix == '.svg' else (path.suffix,):
        metadata = {'.svg': {'Date': None, 'Creator': None}, '.pdf': {'CreationDate': None}}.get(suffix)
        with matplotlib.rc_context(fonts), atomic_path(path.with_suffix(suffix)) as partial:
            # not by Pillow into the file, see mmlape.files.write_bytes
            drawn = io.BytesIO()
            figure.savefig(drawn, dpi=110, metadata=metadata, format=suffix[1:])
            partial.write_bytes(drawn.getvalue())
    return path

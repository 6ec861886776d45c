"""What a user is told, kept as text: tables, lines, files and the content of figures, beside `golden/told/*.txt`.

A text is compared as a whole, so that a wrong label, unit, order, number or format fails. After a change that is
wanted, `RECORD_TOLD=1 python -m pytest TESTS` writes the texts anew, and the diff shows what users will see. What is
called for it stands there, too, in lines that begin with ``$``: another case is another such line.
"""

import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable
from difflib import unified_diff
from functools import cache
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from mmlape.cli import main
from mmlape.console import figures

FOLDER = Path(__file__).parent / 'golden' / 'told'
VARYING = (
    (r'\d{4}-\d\d-\d\d([T ][\d:.+]+)?', 'DATE'),
    (r'\b\d+:\d\d:\d\d\b', 'TIME'),
    (r'\b\d+ s\b', 'SECONDS'),
    (r'\b[0-9a-f]{64}\b', 'HASH'),
    (r'\d+ side by side', 'N side by side'),
)
"""What differs from run to run or by the machine, and the word for it."""
OF_EARLIER_TESTS = 'The current default scope'
"""MMEngine's warning, which depends on the scope that another test has left."""
LONG = re.compile(r'-?\d+\.\d{5,}(e-?\d+)?')


def assert_told(name: str, text: str, **replaced: object) -> None:
    """Compare a text with the one that is kept; what differs from run to run has a word instead."""
    if not _locked():
        pytest.skip('tables, ticks and errors are those of the locked versions')
    for word, value in replaced.items():
        text = text.replace(str(value), word.upper())
    for pattern, word in VARYING:
        text = re.sub(pattern, word, text)
    text = LONG.sub(lambda match: f'{float(match[0]):.4g}', text)
    lines = (line.rstrip() for line in text.splitlines())
    text = '\n'.join(line for line in lines if OF_EARLIER_TESTS not in line)
    file = FOLDER / f'{name}.txt'
    if os.environ.get('RECORD_TOLD'):
        FOLDER.mkdir(exist_ok=True)
        file.write_text(text + '\n')
    kept = file.read_text().splitlines() if file.is_file() else []
    lines = text.splitlines()
    difference = '\n'.join(unified_diff(kept, lines, file.name, 'told now', lineterm='', n=1))
    assert lines == kept, f'{difference}\ntests/told.py says how to write it anew'


def assert_calls_told(name: str, call: Callable[[str], Iterable[str]], **replaced: object) -> None:
    """Compare what the calls of a kept text return: ``call`` is given the words behind ``$``, and returns lines."""
    calls = re.findall(r'^\$ (.*)$', (FOLDER / f'{name}.txt').read_text(), re.M)
    assert calls, f'{name}.txt has no line that begins with $'
    lines = [line for words in calls for line in (f'$ {words}', *call(words))]
    assert_told(name, '\n'.join(filter(None, lines)), **replaced)


def call_command(words: str, capsys) -> list[str]:
    """Call the command line; return what it prints on either stream, and its status."""
    capsys.readouterr()  # what packages print when they are imported
    status = main(shlex.split(words))
    printed = capsys.readouterr()
    return [printed.out.rstrip(), printed.err.rstrip(), f'status {status}']


@cache
def _locked() -> bool:
    lock = (Path(__file__).parents[1] / 'mmlape' / 'requirements.txt').read_text()
    packages = ('matplotlib', 'rich', 'scipy', 'torch')
    return all(f'{name}=={version(name).partition("+")[0]} ' in lock for name in packages)


def described(figure: Figure) -> str:
    """Return what a figure shows, in words and rounded numbers."""
    lines = [f'figure {_numbers(figure.get_size_inches())}', *_texts('text', figure.texts)]
    for axes in figure.axes:
        words = (axes.get_title(), axes.get_title('left'), axes.get_xlabel(), axes.get_ylabel())
        lines.append('axes ' + ' | '.join(repr(word) for word in words))
        lines.append(f'  x {axes.get_xscale()} {_numbers(axes.get_xlim())} y {axes.get_yscale()} '
                     f'{_numbers(axes.get_ylim())} shown {axes.axison}')  # fmt: skip
        for name in ('x', 'y'):
            ticks = [label.get_text() for label in getattr(axes, f'get_{name}ticklabels')()]
            if any(ticks):
                lines.append(f'  {name} ticks {ticks}')
        for line in axes.lines:
            style = (line.get_linestyle(), line.get_linewidth(), line.get_marker(), line.get_markersize())
            lines.append(f'  line {line.get_label()!r} {to_hex(line.get_color())} {style} {line.get_alpha()} '
                         f'x {_numbers(line.get_xdata())} y {_numbers(line.get_ydata())}')  # fmt: skip
        for shape in axes.collections:
            colours = [to_hex(colour) for colour in shape.get_facecolor()[:3]]
            points = [path.vertices for path in shape.get_paths()][:3]
            lines.append(f'  {type(shape).__name__} {shape.get_label()!r} {colours} {shape.get_alpha()} '
                         f'{_numbers(np.concatenate([p.ravel() for p in points]) if points else ())} '
                         f'at {_numbers(np.ravel(shape.get_offsets()))}')  # fmt: skip
        for patch in axes.patches:
            lines.append(
                f'  {type(patch).__name__} {to_hex(patch.get_facecolor())} {_numbers(patch.get_extents().bounds)}'
            )
        for image in axes.images:
            values = np.asarray(image.get_array(), float)
            limits = image.get_clim() if all(limit is not None for limit in image.get_clim()) else ()
            lines.append(f'  image {values.shape} {image.get_cmap().name} {image.get_interpolation()} '
                         f'{_numbers(limits)} {_numbers(values.ravel())}')  # fmt: skip
        lines += _texts('  text', axes.texts)
        if axes.get_legend():
            lines.append(f'  legend {[text.get_text() for text in axes.get_legend().get_texts()]}')
    for legend in figure.legends:
        lines.append(f'legend {[text.get_text() for text in legend.get_texts()]}')
    return '\n'.join(lines)


def _texts(kind: str, texts: list) -> list[str]:
    return [f'{kind} {one.get_text()!r} {one.get_fontsize():g} {_numbers(one.get_position())}' for one in texts]


def _numbers(values: object) -> str:
    """Return numbers with three digits; of many the first, the last, their number and their mean."""
    found = np.ma.filled(np.ma.asarray(np.asarray(values, dtype=object), dtype=float), np.nan).ravel()
    shown = [f'{0.0 if abs(value) < 1e-9 else value:.3g}' for value in found]
    if len(shown) > 12:
        mean = np.nanmean(found) if np.isfinite(found).any() else np.nan
        shown = [*shown[:4], f'... {len(found)} of mean {mean:.3g} ...', *shown[-2:]]
    return f'({", ".join(shown)})'


def keep_figures(monkeypatch) -> dict[str, str]:
    """Have figures described instead of drawn; returns what each is, by the name of its file."""
    found = {}

    original = figures.save_figure

    def save_figure(figure, path):
        found[Path(path).name] = described(figure)
        Path(path).write_bytes(b'drawn')
        return path

    for module in [*sys.modules.values()]:
        if getattr(module, 'save_figure', None) is original:
            monkeypatch.setattr(module, 'save_figure', save_figure)
    return found

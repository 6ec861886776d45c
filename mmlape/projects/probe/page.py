"""The table, the figures and the page of probes."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from mmlape.console import clock
from mmlape.figures import look, save_figure, tidy, wrapped
from mmlape.page import Part, write_page
from mmlape.projects.probe.measure import Layer
from mmlape.projects.probe.probing import Probe
from mmlape.tables import text_table

MEANING = (
    'R² of 1: a linear probe reads row and column of a patch from its features without error; 0: no '
    'better than the middle of the image. The error is the root mean square, in patches. Grey lines '
    'are controls: the same architecture with random values, and the pixels of a patch alone. What a '
    'model has beyond both is what training put there.',
    'Place: the share of the variance of features, over images, that the place in the image explains. '
    'It is what similarities of patches of different images owe to their places.',
    'Moved by N: the distance of the features of the same patch in an image and in the same image moved '
    'by N patches down and right, where both overlap. 0 is the same, 1 as two unrelated patches. New '
    'content comes in at two borders. Rolled: the patches move around the borders, so that all content '
    'stays; a model without position encoding then changes nothing, and what changes is position alone.',
    'On a canvas of 1.5 or 2 times the side, with the image in its middle: the distance of the same '
    "patches, and R² of the probe of the trained size, if places are shares of the canvas's side, or "
    'counted from its corner. Below 0, the probe is worse than the middle of the image.',
)
"""What the numbers mean, for a reader."""
SUMMARY = (
    'The layer in which position is read best, with its controls; then the output, behind the final '
    'norm: R², error in patches, share of the variance that the place explains, distance of the same '
    'patches when the image moves or is rolled (the largest shift), and on the largest canvas the '
    'distance of the same content and R² of the probe.'
)


class Panel(NamedTuple):
    """One of the axes of a figure."""

    title: str
    unit: str
    value: Callable[[Layer], float | None]


def largest(found: Mapping[str, Any]) -> Any:
    """Return what was measured of the largest shift or canvas; None if there is none."""
    return list(found.values())[-1] if found else None


def _of(measured: str, value: Callable[[Any], float]) -> Callable[[Layer], float | None]:
    """Return what reads a value of the largest shift or canvas of a layer."""

    def read(layer: Layer) -> float | None:
        found = largest(getattr(layer, measured))
        return None if found is None else value(found)

    return read


FIGURES = {
    ('reading', 'row and column read from patch tokens, R² on held-out images'): (
        Panel('position read by a linear probe', 'R²', lambda layer: layer.r2),
        Panel('variance explained by the place', 'share', lambda layer: layer.share),
    ),
    ('shifts', 'what changes when an image moves by whole patches, by the largest shift'): (
        Panel('moved', 'distance', _of('shift', lambda change: change.distance)),
        Panel('rolled', 'distance', _of('roll', lambda change: change.distance)),
    ),
    ('canvases', 'what the largest canvas keeps'): (
        Panel('the same content', 'distance', _of('canvas', lambda found: found.content.distance)),
        Panel('places as shares of the side', 'R², -1 or less', _of('canvas', lambda found: found.share_of_side)),
        Panel('places counted from the corner', 'R², -1 or less', _of('canvas', lambda found: found.from_corner)),
    ),
}
"""The panels of each figure, by its name and what it shows; one without values is left out."""


def best(layers: Sequence[Layer]) -> Layer:
    """Return the layer in which position is read best."""
    return max(layers, key=lambda layer: layer.r2)


def number(value: float, digits: int = 2) -> str:
    """Return a number; those far below zero, which say only that a probe does not fit, as one."""
    return '< -1' if value < -1 else f'{value:.{digits}f}'


def summary_table(probes: Sequence[Probe]) -> pd.DataFrame:
    """Build the table of models: the layer that holds most, and the output on the largest shift and canvas."""
    columns = ['model', 'best layer', 'R²', 'random', 'pixels', 'R² of output', 'error', 'place']
    columns += ['moved', 'rolled', 'on canvas', 'R² share', 'R² corner']
    rows = []
    for probe in probes:
        top, last = best(probe.layers), probe.layers[-1]
        cells = [
            probe.name,
            top.name,
            number(top.r2),
            '-' if probe.random is None else number(best(probe.random).r2),
            number(probe.pixels.r2),
            number(last.r2),
            f'{last.error:.1f}',
            f'{last.share:.0%}',
        ]
        for name in ('shifts', 'canvases'):
            values = [panel.value(last) for key, panels in FIGURES.items() if key[0] == name for panel in panels]
            cells += ['-' if value is None else number(value) for value in values]
        rows.append(cells)
    return text_table(columns, rows)


def layer_table(probe: Probe) -> pd.DataFrame:
    """Build the table of the layers of a model."""
    random = dict(zip((layer.name for layer in probe.layers), probe.random or ()))
    shifts, sizes = list(probe.layers[0].shift), list(probe.layers[0].canvas)
    columns = ['layer', 'R² row', 'R² column', 'of folds', 'error', 'random', 'place']
    columns += [f'{what} by {key}' for key in shifts for what in ('moved', 'rolled', 'cosine')]
    columns += [f'{what} at {size}x' for size in sizes for what in ('content', 'R² share', 'R² corner')]
    rows = []
    for layer in probe.layers:
        both = (layer.row, layer.column)
        cells = [
            layer.name,
            number(layer.row.r2),
            number(layer.column.r2),
            f'{number(min(one.low for one in both))} to {number(max(one.high for one in both))}',
            f'{layer.error:.2f}',
            number(random[layer.name].r2) if layer.name in random else '-',
            f'{layer.share:.1%}',
        ]
        for key in shifts:
            moved, rolled = layer.shift[key], layer.roll[key]
            cells += [f'{moved.distance:.2f}', f'{rolled.distance:.2f}', f'{moved.cosine:.2f}']
        for size in sizes:
            found = layer.canvas[size]
            cells += [f'{found.content.distance:.2f}', number(found.share_of_side), number(found.from_corner)]
        rows.append(cells)
    return text_table(columns, rows)


def write_probe_page(probes: Sequence[Probe], out: Path) -> list[Path]:
    """Write the figures and ``index.html``; return the page first."""
    files, parts = [], []
    for (name, caption), panels in FIGURES.items():
        if any(panels[0].value(probe.layers[0]) is not None for probe in probes):
            files.append(_draw(probes, panels, out / f'{name}.png'))
            parts.append(Part('figure', files[-1], caption))
    title = 'Position in the features of ' + (probes[0].name if len(probes) == 1 else f'{len(probes)} models')
    sections = {
        '': [Part('text', SUMMARY), Part('table', summary_table(probes), 'Models')],
        'Figures': parts,
        'What the numbers mean': [Part('list', MEANING)],
        'Layers': [
            Part('details', [Part('table', layer_table(probe))], probe.name, open=len(probes) == 1) for probe in probes
        ],
        'How it was measured': [Part('list', [_facts(probe) for probe in probes])],
    }
    return [write_page(title, sections, list(sections)[1:], out / 'index.html'), *files]


def _draw(probes: Sequence[Probe], panels: Sequence[Panel], path: Path) -> Path:
    """Draw values by depth, a line a model; grey ones are random values, and the dotted ones pixels."""
    figure = Figure((4.4 * len(panels), 3.4 + 0.28 * ((len(probes) + 1) // 2)), layout='constrained')
    axes = figure.subplots(1, len(panels))
    for ax, panel in zip(axes, panels):
        ax.set_title(panel.title, fontsize=9)
        ax.set(xlabel='depth, from the embedding (0) to the output (1)', ylabel=panel.unit)
        for place, probe in enumerate(probes):
            drawn = look(place)
            for layers, options in (
                (probe.random, dict(color='0.65', ls=drawn['ls'], lw=1.0)),
                (probe.layers, dict(drawn, ms=3.5, label=wrapped(probe.name, 44))),
            ):
                values = [max(-1.0, found) for layer in layers or () if (found := panel.value(layer)) is not None]
                ax.plot(np.linspace(0, 1, len(values)), values, **options)
            if panel.unit == 'R²':
                ax.axhline(probe.pixels.r2, color='0.65', ls=':', lw=1.2)
        if panel.unit == 'distance':
            ax.set_ylim(bottom=0)
    tidy(*axes)
    figure.legend(*axes[0].get_legend_handles_labels(), loc='outside lower center', ncols=2, frameon=False, fontsize=8)
    return save_figure(figure, path)


def _facts(probe: Probe) -> str:
    small = f', of which {probe.enlarged} were enlarged to the canvases' if probe.enlarged else ''
    state = ', with random values' if probe.is_random else ''
    return (
        f'{probe.name}{state}: {probe.depth} layers of width {probe.width}, patches of {probe.patch}, '
        f'images of {probe.size[0]} x {probe.size[1]} ({probe.grid[0]} x {probe.grid[1]} patches), '
        f'normalised by {probe.normalisation}; {probe.images} images{small}; {clock(probe.seconds)}'
    )

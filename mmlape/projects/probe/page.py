"""The table, the figures and the page of probes."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from mmlape.console import clock
from mmlape.figures import look, save_figure, tidy, wrapped
from mmlape.page import Part, write_page
from mmlape.projects.probe.measure import Change, Layer
from mmlape.projects.probe.probing import Probe
from mmlape.tables import text_table

READING = 'row and column read from patch tokens, R² on held-out images'
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
        changes = [*list(last.shift.values())[-1:], *list(last.roll.values())[-1:]]
        canvas = list(last.canvas.values())[-1:]
        cells = [
            probe.name,
            top.name,
            number(top.r2),
            '-' if probe.random is None else number(best(probe.random).r2),
            number(probe.pixels.r2),
            number(last.r2),
            f'{last.error:.1f}',
            f'{last.share:.0%}',
            *([f'{change.distance:.2f}' for change in changes] or ['-', '-']),
        ]
        cells += [f'{found.content.distance:.2f}' for found in canvas] or ['-']
        cells += [number(found.share_of_side) for found in canvas] or ['-']
        cells += [number(found.from_corner) for found in canvas] or ['-']
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
    files = [draw_reading(probes, out / 'reading.png')]
    parts = [Part('figure', files[0], READING)]
    if any(probe.layers[0].shift for probe in probes):
        files.append(draw_shifts(probes, out / 'shifts.png'))
        parts.append(Part('figure', files[-1], 'what changes when an image moves by whole patches'))
    if any(probe.layers[0].canvas for probe in probes):
        files.append(draw_canvases(probes, out / 'canvases.png'))
        parts.append(Part('figure', files[-1], 'what a larger canvas keeps'))
    facts = [_facts(probe) for probe in probes]
    title = 'Position in the features of ' + (probes[0].name if len(probes) == 1 else f'{len(probes)} models')
    sections = {
        '': [Part('text', SUMMARY), Part('table', summary_table(probes), 'Models')],
        'Figures': parts,
        'What the numbers mean': [Part('list', MEANING)],
        'Layers': [
            Part('details', [Part('table', layer_table(probe))], probe.name, open=len(probes) == 1) for probe in probes
        ],
        'How it was measured': [Part('list', facts)],
    }
    shown = [name for name in sections if name]
    return [write_page(title, sections, shown, out / 'index.html'), *files]


def _facts(probe: Probe) -> str:
    small = f', of which {probe.enlarged} were enlarged to the canvases' if probe.enlarged else ''
    state = ', with random values' if probe.is_random else ''
    return (
        f'{probe.name}{state}: {probe.depth} layers of width {probe.width}, patches of {probe.patch}, '
        f'images of {probe.size[0]} x {probe.size[1]} ({probe.grid[0]} x {probe.grid[1]} patches), '
        f'normalised by {probe.normalisation}; {probe.images} images{small}; {clock(probe.seconds)}'
    )


def _lines(axes, probes: Sequence[Probe], value: Callable[[Layer], float | None], title: str, ylabel: str) -> None:
    """Draw a value of each layer, a line a model, over the depth; grey ones are random values."""
    for place, probe in enumerate(probes):
        drawn = look(place)
        for layers, options in (
            (probe.random, dict(color='0.65', ls=drawn['ls'], lw=1.0)),
            (probe.layers, dict(drawn, ms=3.5, label=wrapped(probe.name, 44))),
        ):
            points = [
                (number / max(1, len(layers) - 1), found)
                for number, layer in enumerate(layers or ())
                if (found := value(layer)) is not None
            ]
            if points:
                axes.plot(*zip(*points), **options)
    axes.set_title(title, fontsize=9)
    axes.set(xlabel='depth, from the embedding (0) to the output (1)', ylabel=ylabel)


def _finish(figure: Figure, axes, path: Path) -> Path:
    tidy(*axes)
    handles = axes[0].get_legend_handles_labels()
    figure.legend(*handles, loc='outside lower center', ncols=2, frameon=False, fontsize=8)
    return save_figure(figure, path)


def _new(columns: int, probes: Sequence[Probe], height: float = 3.4) -> tuple[Figure, list]:
    rows = (len(probes) + 1) // 2
    figure = Figure((4.4 * columns, height + 0.28 * rows), layout='constrained')
    return figure, list(figure.subplots(1, columns, squeeze=False)[0])


def draw_reading(probes: Sequence[Probe], path: Path) -> Path:
    """Draw R² by depth, and the share of variance that the place explains."""
    figure, axes = _new(2, probes)
    _lines(axes[0], probes, lambda layer: layer.r2, 'position read by a linear probe', 'R²')
    _lines(axes[1], probes, lambda layer: layer.share, 'variance explained by the place', 'share')
    pixels = {round(probe.pixels.r2, 4) for probe in probes}
    for value in pixels:
        axes[0].axhline(value, color='0.65', ls=':', lw=1.2)
    axes[0].set_ylim(min(-0.05, *(max(-0.3, layer.r2) for probe in probes for layer in probe.layers)), 1.03)
    return _finish(figure, axes, path)


def draw_shifts(probes: Sequence[Probe], path: Path) -> Path:
    """Draw the distance behind each layer, of the largest shift: moved, and rolled."""
    figure, axes = _new(2, probes)
    _lines(axes[0], probes, lambda layer: _largest(layer.shift), 'moved', 'distance')
    _lines(axes[1], probes, lambda layer: _largest(layer.roll), 'rolled', 'distance')
    for ax in axes:
        ax.set_ylim(bottom=0)
    shifts = sorted({list(probe.layers[0].shift)[-1] for probe in probes if probe.layers[0].shift})
    figure.suptitle(f'the same patches, {" or ".join(shifts)} patches further', fontsize=10)
    return _finish(figure, axes, path)


def _largest(changes: Mapping[str, Change]) -> float | None:
    return list(changes.values())[-1].distance if changes else None


def draw_canvases(probes: Sequence[Probe], path: Path) -> Path:
    """Draw what the largest canvas keeps: the distance of the same content, and the probe's R²."""
    figure, axes = _new(3, probes)
    size = max((key for probe in probes for key in probe.layers[0].canvas), key=float)

    def of(layer: Layer, value: Callable) -> float | None:
        found = layer.canvas.get(size)
        return None if found is None else max(-1.0, value(found))

    _lines(
        axes[0],
        probes,
        lambda layer: of(layer, lambda found: found.content.distance),
        f'the same content at {size}x',
        'distance',
    )
    _lines(
        axes[1],
        probes,
        lambda layer: of(layer, lambda found: found.share_of_side),
        'probe at 1x, places as shares of the side',
        'R², -1 or less',
    )
    _lines(
        axes[2],
        probes,
        lambda layer: of(layer, lambda found: found.from_corner),
        'probe at 1x, places counted from the corner',
        'R², -1 or less',
    )
    axes[0].set_ylim(bottom=0)
    for ax in axes[1:]:
        ax.set_ylim(-1.05, 1.05)
    return _finish(figure, axes, path)

#!/usr/bin/env python
"""Draw what each reading keeps at twice the side, and its mIoU there: `python docs/results/canvas_figure.py FOLDER`.

FOLDER holds what `canvas.tar.xz` unpacks to.
"""

import sys
from pathlib import Path

import canvas
import matplotlib
import numpy as np
from matplotlib.figure import Figure

GROUPS = {
    'LaPE': ('lape', 'lape-affine', 'lape, tiled', 'lape-rescale', 'lape-windows'),
    'LaPE and cpe': ('lape-cpe', 'lape-cpe, tiled', 'lape-cpe-rescale'),
    'MPVG': ('mpvg', 'mpvg, tiled', 'mpvg-rescale'),
    'default': ('default', 'default, tiled', 'default-rescale', 'sincos2d', 'sincos2d, anew'),
    'others': ('cpe', 'irpe', 'pape'),
}
COLOURS = ('#0b6cb0', '#0e9384', '#7c3aed', '#7a7a7a', '#c2410c')


def draw(folder: Path, path: Path) -> None:
    """Write the figure: a point for each seed, and a line at the mean."""
    figure = Figure((7.6, 4.6), layout='constrained')
    left, right = figure.subplots(1, 2, sharey=True)
    names = [name for group in GROUPS.values() for name in group]
    colours = [colour for colour, group in zip(COLOURS, GROUPS.values()) for _ in group]
    for row, (name, colour) in enumerate(zip(names, colours)):
        values = canvas.read(folder, name)
        for axes, points in ((left, canvas.kept(values, 2.0)), (right, values[2.0])):
            axes.barh([row], [np.mean(points)], height=0.6, color=colour, alpha=0.25)
            axes.plot(points, [row] * len(points), 'o', color=colour, markersize=4)
        right.plot(values[1.0], [row] * len(values[1.0]), '|', color=colour, markersize=8)
    left.axvline(canvas.KEPT, color='k', linewidth=0.8, linestyle='--')
    left.set_yticks(range(len(names)), names)
    left.invert_yaxis()
    left.set_xlabel('kept of the mIoU as trained, %')
    right.set_xlabel('mIoU at twice the side; | as trained')
    for axes in (left, right):
        axes.grid(axis='x', alpha=0.3)
        axes.set_xlim(left=0)
    figure.savefig(path, metadata={'Date': None})


if __name__ == '__main__':
    matplotlib.rcParams['svg.hashsalt'] = 'mmlape'
    draw(Path(sys.argv[1]), Path(__file__).with_name('canvas.svg'))

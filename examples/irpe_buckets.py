#!/usr/bin/env python
"""iRPE's mappings of offsets to buckets: `python examples/irpe_buckets.py --out DIR`.

The buckets of a query's keys as images (its supplement, Figures 6 to 9), and g beside h (its paper, Figure 2).
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure

from mmlape.models.grid import Grid
from mmlape.models.position.irpe import Buckets

RATIOS = {'euclidean': 20.0, 'quantization': 33.0, 'cross': 20.0, 'product': 1.9}
"""Of the paper's models."""
SPAN = 24  # offsets of the curves, on either side


def bucket_map(buckets: Buckets, grid: Grid, cell: tuple[int, int]) -> list[np.ndarray]:
    """Return the bucket of every patch's key for the query of one patch, (rows, columns) a table."""
    place = cell[0] * grid[1] + cell[1]
    return [ids[place].view(grid).numpy() for ids in buckets.of_grid(grid, 0)]


def draw_buckets(path: str | Path, grid: Grid = (14, 14)) -> None:
    """Draw each mapping for a query in the corner and one in the centre: a colour a bucket, a star at the query."""
    cells = ((0, 0), (grid[0] // 2, grid[1] // 2))
    rows = [(method, Buckets(method, ratio, 2 * ratio, 8 * ratio)) for method, ratio in RATIOS.items()]
    panels = [
        (f'{method}{" " + ("rows", "columns")[table] if buckets.tables > 1 else ""}, {len(np.unique(shown))} buckets',
         shown, cell)
        for method, buckets in rows
        for table in range(buckets.tables)
        for cell in cells
        for shown in [bucket_map(buckets, grid, cell)[table]]
    ]  # fmt: skip
    figure = Figure((2.6 * 4, 2.8 * -(-len(panels) // 4)), layout='constrained')
    axes = figure.subplots(-(-len(panels) // 4), 4, squeeze=False).flat
    for ax in axes:
        ax.set_axis_off()
    for ax, (title, shown, cell) in zip(figure.axes, panels):
        _, colours = np.unique(shown, return_inverse=True)  # neighbours in number are not neighbours in colour
        shades = np.random.RandomState(0).permutation(colours.max() + 1)[colours].reshape(shown.shape)
        ax.imshow(shades, cmap='nipy_spectral', interpolation='nearest')
        ax.plot(cell[1], cell[0], marker='*', color='white', ms=9, mec='black')
        ax.set_title(title, fontsize=8)
    _save(figure, path)


def draw_indexes(path: str | Path, ratio: float = 1.9) -> None:
    """Draw g and h over offsets."""
    x = torch.arange(-SPAN, SPAN + 1)
    figure = Figure((6, 3.6), layout='constrained')
    ax = figure.subplots()
    for index, name in (('piecewise', 'piecewise, g'), ('clip', 'clip, h')):
        buckets = Buckets('cross', ratio, 2 * ratio, 8 * ratio, index)
        ax.step(x, buckets.of_offsets(x, x)[0] - int(buckets.beta), where='mid', label=name)
    ax.set(xlabel='offset', ylabel='index', title=f'alpha, beta, gamma = {ratio:g}, {2 * ratio:g}, {8 * ratio:g}')
    ax.grid(alpha=0.3)
    ax.legend()
    _save(figure, path)


def write_bucket_figures(folder: str | Path, grid: Grid = (14, 14)) -> list[Path]:
    """Write ``buckets.png`` and ``indexes.png``."""
    files = [Path(folder) / name for name in ('buckets.png', 'indexes.png')]
    draw_buckets(files[0], grid)
    draw_indexes(files[1])
    return files


def main(argv: Sequence[str] | None = None) -> int:
    """Read the arguments and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition('\n\n')[2])
    parser.add_argument('--out', required=True, metavar='DIR', help='receives the figures')
    for file in write_bucket_figures(parser.parse_args(argv).out):
        print(f'wrote {file}')
    return 0


def _save(figure: Figure, path: str | Path) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


if __name__ == '__main__':
    sys.exit(main())

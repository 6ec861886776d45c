#!/usr/bin/env python
"""Draw the differences of `depth.md` from records: `python docs/results/depth_figure.py WORK_DIRS`.

WORK_DIRS holds what `fashion-mnist-depth.tar.xz` and `fashion-mnist-replication.tar.xz` unpack to.
"""

import sys
from pathlib import Path

import matplotlib
import replication
from depth import Depth
from matplotlib.figure import Figure

PRIMARY = {
    'LaPE, CVT': ('lape', 'default'),
    'LaPE, ViT-Lite': ('lape-vit-lite', 'default-vit-lite'),
    'MPVG, CVT': ('mpvg', 'default'),
}
SECONDARY = {
    'LaPE, CVT with the mean': ('lape-mean', 'default-mean'),
    'MPVG, CVT with the mean': ('mpvg-mean', 'default-mean'),
    'PVG, CVT': ('pvg', 'default'),
    'lape-shared, CVT': ('lape-shared', 'default'),
    'lape-shared, ViT-Lite': ('lape-shared-vit-lite', 'default-vit-lite'),
}
COLOURS = {
    'eight seeds': '#0b6cb0',
    'five seeds, or five and eight': '#7a7a7a',
    'both at 4e-3, the first study': '#c2410c',
}


def draw(folder: Path, path: Path) -> None:
    """Write the figure; intervals are Welch's, of the first study paired, as on its page."""
    runs = Depth(str(folder / 'fashion-mnist-depth'))
    ours = [{name: runs.difference(*pair) for name, pair in pairs.items()} for pairs in (PRIMARY, SECONDARY)]
    earlier = replication.Runs(str(folder / 'fashion-mnist-replication'))
    first = next(replication.depth(earlier))[1]
    groups = [*ours, {'LaPE, CVT, one rate for both': first}]
    figure = Figure((7.2, 3.4), layout='constrained')
    axes = figure.subplots()
    names: list[str] = []
    for colour, (label, group) in zip(COLOURS.values(), zip(COLOURS, groups)):
        for name, one in group.items():
            shown = label if name == next(iter(group)) else None
            bars = [[one.mean - one.low], [one.high - one.mean]]
            axes.errorbar([one.mean], [len(names)], xerr=bars, fmt='o', color=colour, capsize=3, label=shown)
            names.append(name)
    axes.axvline(0, color='k', linewidth=0.8)
    axes.set_yticks(range(len(names)), names)
    axes.set_xlabel('points of top-1, minus the default of the same model')
    axes.invert_yaxis()
    axes.legend(loc='lower right', fontsize=8)
    axes.grid(axis='x', alpha=0.3)
    figure.savefig(path, metadata={'Date': None})


if __name__ == '__main__':
    matplotlib.rcParams['svg.hashsalt'] = 'mmlape'
    draw(Path(sys.argv[1]), Path(__file__).with_name('depth.svg'))

#!/usr/bin/env python
"""The answers of `studies/mini-canvas-objects.yml` from its sweeps: `python docs/results/canvas_objects.py FOLDER`.

This was written before the first run of that study (beacdfcf); since then `canvas` makes the tables of differences.
FOLDER holds the two folders that `mmlape size-sweep` has written,
`mini-canvas-objects-sweep` and `mini-canvas-objects-tile`. mIoU is that of the ten classes of objects, so that a model
that sees background alone has none. What is kept is, for each run, its mIoU on a canvas divided by its own on the
trained one, in percent.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import canvas
import numpy as np
import scipy.stats

from mmlape.console.tables import markdown_table, text_table
from mmlape.files import read_json

SEEDS = range(601, 604)
SWEEP, TILE = 'mini-canvas-objects-sweep', 'mini-canvas-objects-tile'
TILED = ', tiled'
ARMS = (
    'lape', 'lape-rescale', 'lape-windows', 'lape-cpe', 'lape-cpe-rescale', 'default', 'default-rescale', 'none',
    'cpe', 'mpvg', 'pape', 'irpe',
)  # fmt: skip
READINGS = (*ARMS, *(arm + TILED for arm in ('lape', 'lape-cpe', 'default', 'mpvg')))
CURES = ('lape, tiled', 'lape-rescale', 'lape-windows', 'lape-cpe, tiled', 'lape-cpe-rescale')


def read(folder: Path, name: str) -> canvas.Values:
    """Return the mIoU of objects of each seed of a reading, by scale."""
    sweep = TILE if name.endswith(TILED) else SWEEP
    values: canvas.Values = {}
    for scale in canvas.SCALES:
        values[scale] = []
        for seed in SEEDS:
            run = folder / sweep / name.removesuffix(TILED) / f'seed_{seed}'
            content = read_json(run / f'size_{scale:g}' / 'metrics.json') or {}
            classes = content.get('per_class', {}).get('IoU', {})
            objects = [value for key, value in classes.items() if key != 'background']
            if len(objects) != 10:
                raise canvas.Unfinished(f'{name}: seed {seed} is not evaluated at {scale:g} times the trained size')
            values[scale].append(float(np.mean(objects)))
    return values


def keeps_enough(folder: Path, names: Sequence[str]) -> str:
    """Return whether readings keep more than 80 %, by a one-sided t-test of each."""
    rows = []
    for name in names:
        shares = canvas.kept(read(folder, name), 2.0)
        p = scipy.stats.ttest_1samp(shares, canvas.KEPT, alternative='greater').pvalue
        shown = 'yes' if p < 0.05 else 'not shown'
        rows.append((name, f'{np.mean(shares):.1f}', f'{p:.2g}', shown))
    head = ('reading', 'kept, %', f'over {canvas.KEPT:g} %, p', 'shown')
    return markdown_table(text_table(head, rows))


def answers(folder: Path) -> dict[str, str]:
    """Return the table of each question."""
    return {
        'Primary: does LaPE keep its mIoU at 2 times the trained size?': keeps_enough(folder, ['lape']),
        'Primary: what cures of LaPE keep at 2 times the trained size': canvas.share_table(
            folder, CURES, 'lape', read
        ),
        '1. LaPE and MPVG against the default': canvas.share_table(folder, ('lape', 'mpvg'), 'default', read),
        '2. mIoU as trained': canvas.miou_table(
            folder,
            ('lape-rescale', 'lape-windows', 'lape-cpe', 'lape-cpe-rescale', 'default', 'none'),
            'lape',
            1.0,
            read,
        ),
        '3. mIoU at 2 times the trained size': canvas.miou_table(
            folder, ('lape', 'mpvg', 'pape', 'irpe', 'cpe', 'none'), 'default', 2.0, read
        ),
        '4. The default': canvas.share_table(folder, ('default, tiled', 'default-rescale'), 'default', read),
        'Means over the seeds': canvas.means(folder, READINGS, read),
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Print the answer to each question, once every run is evaluated at every scale."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('folder', metavar='FOLDER', type=Path, help='of the folders of `mmlape size-sweep --out`')
    folder = parser.parse_args(argv).folder
    try:
        found = answers(folder)
    except canvas.Unfinished as unfinished:
        raise SystemExit(f'not answered: {unfinished}') from None
    print('\n\n'.join(f'### {question}\n\n{answer}' for question, answer in found.items()))


if __name__ == '__main__':
    main()

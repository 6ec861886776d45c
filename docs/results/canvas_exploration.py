#!/usr/bin/env python
"""Rates and strengths of `studies/mini-canvas-rates.yml`: `python docs/results/canvas_exploration.py COMMAND ...`.

COMMAND is `make-mini-data` or `size-sweep` of mmlape, whose validation scenes have scans for training here: no scan on
which the answer of `studies/mini-canvas.yml` depends was touched. `tables FOLDER` prints what came out; FOLDER holds
the runs, `mini-canvas-rates`, and their sweep, `mini-canvas-rates-sweep`.
"""

import sys
from pathlib import Path

import numpy as np

from mmlape.cli import main
from mmlape.console.tables import markdown_table, text_table
from mmlape.files import read_json
from mmlape.lab.datasets.mini import scenes
from mmlape.lab.runs.schema import read_record

VAL_EVERY = 5
RATES = {'r1': '1e-3', 'r2': '2e-3', 'r4': '4e-3'}
STRENGTHS = {'s15': '1.5', 'r2': '2', 's3': '3'}
SEED = 11


TRAINING = scenes.divide_scans('train')


def divide_training_scans(split: str) -> list[np.ndarray]:
    """Divide scans for training alone: every fifth of each digit for 'val', the others for 'train'."""
    held_out = [np.arange(len(scans)) % VAL_EVERY == VAL_EVERY - 1 for scans in TRAINING]
    return [scans[held == (split == 'val')] for scans, held in zip(TRAINING, held_out)]


def rates(folder: Path) -> str:
    """Return mIoU as trained, by arm and rate."""
    runs = {path.parent.name: path for path in (folder / 'mini-canvas-rates').glob(f'*/seed_{SEED}')}
    arms = [name.removesuffix('-r2') for name in runs if name.endswith('-r2')]
    rows = [(arm, *(_last(runs.get(f'{arm}-{rate}')) for rate in RATES)) for arm in sorted(arms)]
    return markdown_table(text_table(('arm', *RATES.values()), rows))


def _last(run: Path | None) -> str:
    record = read_record(run) if run else None
    return f'{record.last.metrics["mIoU"]:.1f}' if record and record.last else '-'


def strengths(folder: Path) -> str:
    """Return mIoU as trained and at twice the side, by cure and strength."""
    report = read_json(folder / 'mini-canvas-rates-sweep' / 'report.json')
    if report is None:
        raise SystemExit(f'{folder} has no mini-canvas-rates-sweep/report.json')
    arms = report['arms']
    cures = [name.removesuffix('-s3') for name in arms if name.endswith('-s3')]
    rows = []
    for cure in sorted(cures):
        metrics = [arms[f'{cure}-{one}']['last']['metrics'] for one in STRENGTHS]
        means = [[one[f'mIoU at {scale}']['mean'] for scale in (1, 2)] for one in metrics]
        rows.append((cure, *(f'{trained:.1f}, {twice:.1f}' for trained, twice in means)))
    return markdown_table(text_table(('cure', *STRENGTHS.values()), rows))


if __name__ == '__main__':
    if sys.argv[1:2] == ['tables']:
        print(rates(Path(sys.argv[2])), strengths(Path(sys.argv[2])), sep='\n\n')
    else:
        scenes.divide_scans = divide_training_scans
        sys.exit(main())

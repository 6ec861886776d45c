#!/usr/bin/env python
"""Commands whose validation scenes have scans for training: `python docs/results/canvas_exploration.py COMMAND ...`.

COMMAND is `make-mini-data` or `size-sweep` of mmlape. Rates and strengths for `studies/mini-canvas-objects.yml` were
chosen so, and no scan on which the answer of `studies/mini-canvas.yml` depends was touched.
"""

import sys

import numpy as np

from mmlape.cli import main
from mmlape.lab.datasets.mini import scenes

VAL_EVERY = 5


class TrainingScans(scenes.Scans):
    """Scans for training alone: every fifth of each digit for 'val', the others for 'train'."""

    def __init__(self, split: str, rng: np.random.Generator) -> None:
        super().__init__('train', rng)
        for label, scans in enumerate(self.of_class):
            held_out = np.arange(len(scans)) % VAL_EVERY == VAL_EVERY - 1
            self.of_class[label] = scans[held_out == (split == 'val')]


if __name__ == '__main__':
    scenes.Scans = TrainingScans
    sys.exit(main())

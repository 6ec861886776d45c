#!/usr/bin/env python
"""The answers of `studies/mini-canvas.yml` from its sweeps: `python docs/results/canvas.py FOLDER`.

This was written before the first run of that study. FOLDER holds the three folders that `mmlape size-sweep` has
written, `mini-canvas-sweep`, `mini-canvas-tile` and `mini-canvas-anew`. A question is answered when each run of its
arms is evaluated at each of the scales. What is kept is, for each run, its mIoU on a canvas divided by its own mIoU on
the trained one, in percent.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.stats
from statsmodels.stats.multitest import multipletests

from mmlape.console.tables import markdown_table, text_table
from mmlape.files import read_json
from mmlape.lab.experiments.statistics import Difference, holm, welch

SEEDS = range(501, 504)
SCALES = (1.0, 1.5, 2.0)
METRIC = 'mIoU'
KEPT, LOST = 80.0, 2.0
"""Success: at least so many percent are kept at twice the side, and at most so many points are lost as trained."""

SWEEP, TILE, ANEW = 'mini-canvas-sweep', 'mini-canvas-tile', 'mini-canvas-anew'


class Reading(NamedTuple):
    """An arm of the study, and how its table is taken to larger grids at test time."""

    arm: str
    sweep: str = SWEEP  # as it was trained; TILE repeats the table, ANEW computes sinusoids for the new grid


READINGS = {
    **{
        arm: Reading(arm)
        for arm in (
            'lape', 'lape-rescale', 'lape-windows', 'lape-cpe', 'lape-cpe-rescale', 'default', 'default-rescale',
            'cpe', 'mpvg', 'mpvg-rescale', 'pape', 'irpe', 'lape-affine', 'sincos2d',
        )
    },
    **{f'{arm}, tiled': Reading(arm, TILE) for arm in ('lape', 'lape-cpe', 'default', 'mpvg')},
    'sincos2d, anew': Reading('sincos2d', ANEW),
}  # fmt: skip
CURES = ('lape, tiled', 'lape-rescale', 'lape-windows', 'lape-cpe, tiled', 'lape-cpe-rescale')

Values = dict[float, list[float]]
"""The mIoU of each seed, by scale."""
Reader = Callable[[Path, str], Values]
"""Returns the values of a reading."""


class Unfinished(Exception):
    """Some runs are not evaluated."""


def read(folder: Path, name: str) -> Values:
    """Return the mIoU of each seed of a reading, by scale."""
    reading = READINGS[name]
    report = read_json(folder / reading.sweep / 'report.json') or {}
    metrics = report.get('arms', {}).get(reading.arm, {}).get('last', {}).get('metrics', {})
    values: Values = {}
    for scale in SCALES:
        by_seed = metrics.get(f'{METRIC} at {scale:g}', {}).get('values', {})
        missing = [seed for seed in SEEDS if by_seed.get(str(seed)) is None]
        if missing:
            raise Unfinished(f'{name}: seed {missing[0]} has no {METRIC} at {scale:g} times the trained size')
        values[scale] = [by_seed[str(seed)] for seed in SEEDS]
    return values


def kept(values: Values, scale: float) -> list[float]:
    """Return the share of the trained canvas's mIoU that each run keeps at a scale, in percent, where it has any."""
    return [100 * value / own for value, own in zip(values[scale], values[1.0], strict=True) if own]


class Success(NamedTuple):
    """Whether a cure keeps enough and costs little: both one-sided tests at 5 %, the larger p counts."""

    keeps: float  # p of: at most KEPT percent are kept
    loses: float  # p of: LOST points or more are lost as trained

    @property
    def p(self) -> float:
        """The p of the two together, an intersection-union test."""
        return max(self)


def success(cure: Values, plain: Values) -> Success:
    """Test a cure against the two bounds; models that were not trained anew lose nothing as trained."""
    keeps = scipy.stats.ttest_1samp(kept(cure, 2.0), KEPT, alternative='greater').pvalue
    if cure[1.0] == plain[1.0]:
        return Success(float(keeps), 0.0)
    moved = [value + LOST for value in cure[1.0]]
    loses = scipy.stats.ttest_ind(moved, plain[1.0], equal_var=False, alternative='greater').pvalue
    return Success(float(keeps), float(loses))


def table(names: Sequence[str], differences: Sequence[Difference], head: str) -> str:
    """Return the table of a family of comparisons."""
    cells = [
        (name, '-' if one.mean is None else f'{one.mean:.1f}',
         f'{one.low:.1f} to {one.high:.1f}' if one.p is not None else one.note,
         *('' if p is None else f'{p:.2g}' for p in (one.p, one.holm)))
        for name, one in zip(names, holm(differences), strict=True)
    ]  # fmt: skip
    return markdown_table(text_table((head, 'mean', '95 % interval', 'p', 'p (Holm)'), cells))


def share_table(folder: Path, names: Sequence[str], baseline: str, read: Reader = read) -> str:
    """Return what readings keep at twice the side, minus what the baseline keeps."""
    plain = kept(read(folder, baseline), 2.0)
    return table(names, [welch(kept(read(folder, name), 2.0), plain) for name in names], f'kept - {baseline}')


def miou_table(folder: Path, names: Sequence[str], baseline: str, scale: float, read: Reader = read) -> str:
    """Return the mIoU of readings on a canvas, minus the baseline's."""
    plain = read(folder, baseline)[scale]
    return table(names, [welch(read(folder, name)[scale], plain) for name in names], f'mIoU - {baseline}')


def success_table(folder: Path) -> str:
    """Return the tests of success of LaPE's cures, with Holm's correction."""
    plain = read(folder, 'lape')
    found = [success(read(folder, name), plain) for name in CURES]
    _, corrected, _, _ = multipletests([one.p for one in found], method='holm')
    cells = [
        (name, f'{one.keeps:.2g}', f'{one.loses:.2g}', f'{p:.2g}', 'yes' if p < 0.05 else 'not shown')
        for name, one, p in zip(CURES, found, corrected)
    ]
    head = ('cure', f'keeps over {KEPT:g} %, p', f'loses under {LOST:g} points, p', 'both, p (Holm)', 'success')
    return markdown_table(text_table(head, cells))


def means(folder: Path, names: Sequence[str] = tuple(READINGS), read: Reader = read) -> str:
    """Return the mean mIoU of every reading that is evaluated, by scale, and what is kept at 2, with its range."""
    rows = []
    for name in names:
        try:
            values = read(folder, name)
        except Unfinished:
            continue
        share = kept(values, 2.0)
        shown = f'{np.mean(share):.1f} ({min(share):.1f} to {max(share):.1f})' if share else '-'
        rows.append((name, *(f'{np.mean(values[scale]):.1f}' for scale in SCALES), shown))
    return markdown_table(text_table(('reading', '1', '1.5', '2', 'kept at 2, %'), rows))


QUESTIONS = {
    'Primary: what cures of LaPE keep at 2 times the trained size': lambda folder: share_table(folder, CURES, 'lape'),
    'Primary: success': success_table,
    '1. mIoU as trained, cures of LaPE': lambda folder: miou_table(
        folder, ('lape-rescale', 'lape-windows', 'lape-cpe', 'lape-cpe-rescale'), 'lape', 1.0
    ),
    '2. The default': lambda folder: share_table(folder, ('default, tiled', 'default-rescale'), 'default'),
    '3. mIoU at 2 times the trained size': lambda folder: miou_table(
        folder, ('lape, tiled', 'lape-rescale', 'lape-windows', 'lape-cpe, tiled', 'lape-cpe-rescale'), 'cpe', 2.0
    ),
    '4. MPVG': lambda folder: share_table(folder, ('mpvg, tiled', 'mpvg-rescale'), 'mpvg'),
    '5. PaPE and iRPE: mIoU at 2 times the trained size': lambda folder: miou_table(
        folder, ('pape', 'irpe'), 'cpe', 2.0
    ),
    '6. LaPE without the standardising': lambda folder: share_table(folder, ('lape-affine',), 'lape'),
    '7. Sinusoids': lambda folder: share_table(folder, ('sincos2d, anew',), 'sincos2d'),
}


def answers(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield each question, and its table or why there is none yet."""
    for question, answer in QUESTIONS.items():
        try:
            yield question, answer(folder)
        except Unfinished as unfinished:
            yield question, f'Not answered: {unfinished}.'


def main(argv: Sequence[str] | None = None) -> None:
    """Print the answer to each question, and means once all are answered."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('folder', metavar='FOLDER', type=Path, help='of the folders of `mmlape size-sweep --out`')
    folder = parser.parse_args(argv).folder
    for question, answer in answers(folder):
        print(f'### {question}\n\n{answer}\n')
    print(f'### Means over the seeds\n\n{means(folder)}')


if __name__ == '__main__':
    main()

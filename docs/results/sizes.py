#!/usr/bin/env python
"""The answers of `studies/mini-sizes.yml` from its sweep: `python docs/results/sizes.py SWEEP`.

This was written before the first run of that study. SWEEP is the folder that `mmlape size-sweep` has written; every
run of every arm must be in it, at each of the scales. What an arm keeps is, for each run, its mIoU on a canvas divided
by its own mIoU on the trained one, in percent.
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import scipy.stats

from mmlape.console.tables import markdown_table, text_table
from mmlape.files import read_json
from mmlape.lab.experiments.statistics import CONFIDENCE, LEAST, Difference, holm, welch

ARMS = (
    'default', 'lape', 'mpvg', 'none', 'rpe', 'irpe', 'alibi2d', 'fire', 'lookhere', 'rope', 'rope-normalised',
    'rope-jitter', 'cpe',
)  # fmt: skip
BASELINE, OTHERS = ARMS[0], ARMS[1:]
SEEDS = range(401, 406)
SCALES = (0.75, 1.0, 1.5, 2.0, 4.0)
METRIC = 'mIoU'

RESAMPLES = 9999

Values = dict[str, list[float]]
"""One number of each seed, by arm."""


class Unfinished(Exception):
    """Some runs are not evaluated."""


def read_sweep(folder: str | Path) -> dict[float, Values]:
    """Return the mIoU of each seed, by scale and arm.

    The sweep of the study wrote ``size_sweep.json``, a later one writes ``report.json``.
    """
    found = read_json(Path(folder) / 'size_sweep.json') or _of_report(read_json(Path(folder) / 'report.json') or {})
    values: dict[float, Values] = {scale: {} for scale in SCALES}
    for arm in ARMS:
        for seed in SEEDS:
            by_scale = {float(scale): metrics for scale, metrics in found.get(f'{arm}/seed_{seed}', {}).items()}
            for scale in SCALES:
                value = by_scale.get(scale, {}).get(METRIC)
                if value is None:
                    raise Unfinished(f'{arm}, seed {seed}, has no {METRIC} at {scale:g} times the trained size')
                values[scale].setdefault(arm, []).append(value)
    return values


def _of_report(report: dict) -> dict[str, dict]:
    """Return the values of a report of ``size-sweep`` by run and scale."""
    found: dict[str, dict] = {}
    for arm, entry in report.get('arms', {}).items():
        for scale in SCALES:
            average = entry['last']['metrics'].get(f'{METRIC} at {scale:g}', {})
            for seed, value in average.get('values', {}).items():
                found.setdefault(f'{arm}/seed_{seed}', {})[scale] = {METRIC: value}
    return found


def kept(values: dict[float, Values], scale: float) -> Values:
    """Return the share of the trained canvas's mIoU that each run keeps at a scale, in percent, where it has any."""
    return {
        arm: [100 * value / own for value, own in zip(values[scale][arm], values[1.0][arm], strict=True) if own]
        for arm in ARMS
    }


def without_share(values: dict[float, Values]) -> list[str]:
    """Return the runs whose mIoU on the trained canvas is 0."""
    return [f'{arm}, seed {seed}' for arm in ARMS for seed, own in zip(SEEDS, values[1.0][arm]) if not own]


def against_default(values: Values) -> list[Difference]:
    """Return each arm minus the default: Welch's t, Holm's correction over the arms."""
    return holm([welch(values[arm], values[BASELINE]) for arm in OTHERS])


def means(values: dict[float, Values]) -> str:
    """Return mIoU by scale: means over the seeds with their bootstrap intervals."""
    rows = [(arm, *(_mean(values[scale][arm]) for scale in SCALES)) for arm in ARMS]
    return markdown_table(text_table(('arm', *(f'{scale:g}' for scale in SCALES)), rows))


def shares(values: dict[float, Values]) -> str:
    """Return what is kept: means over the seeds with their bootstrap intervals."""
    scales = [scale for scale in SCALES if scale != 1]
    by_scale = [kept(values, scale) for scale in scales]
    rows = [(arm, *(_mean(some[arm]) for some in by_scale)) for arm in ARMS]
    return markdown_table(text_table(('arm', *(f'{scale:g}' for scale in scales)), rows))


def _mean(some: Sequence[float]) -> str:
    if not some:
        return '-'
    low, high = interval(some)
    return f'{sum(some) / len(some):.1f} [{low:.1f}, {high:.1f}]'


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % percentile interval of a mean over seeds, by a bootstrap; NaN for fewer than three values."""
    values = np.asarray(values, dtype=float)
    if len(values) < LEAST:
        return np.nan, np.nan
    found = scipy.stats.bootstrap(
        (values,), np.mean, n_resamples=RESAMPLES, confidence_level=CONFIDENCE, method='percentile',
        rng=np.random.default_rng(0),
    )  # fmt: skip
    return tuple(map(float, found.confidence_interval))


def differences(values: Values) -> str:
    """Return the table of a family of comparisons with the default."""
    cells = [
        (arm, '-' if one.mean is None else f'{one.mean:.1f}',
         f'{one.low:.1f} to {one.high:.1f}' if one.p is not None else one.note,
         *('' if p is None else f'{p:.2g}' for p in (one.p, one.holm)))
        for arm, one in zip(OTHERS, against_default(values), strict=True)
    ]  # fmt: skip
    return markdown_table(text_table(('arm - default', 'mean', '95 % interval', 'p', 'p (Holm)'), cells))


def answers(values: dict[float, Values]) -> Iterator[tuple[str, str]]:
    """Yield each question and its table."""
    yield 'Primary: what is kept at 2 times the trained size, in percent', differences(kept(values, 2.0))
    yield '1. mIoU at 2 times the trained size', differences(values[2.0])
    for number, scale in ((2, 1.5), (3, 4.0)):
        yield f'{number}. What is kept at {scale:g} times the trained size', differences(kept(values, scale))
    yield 'mIoU by canvas, with bootstrap intervals over seeds', means(values)
    yield 'What is kept, in percent, with bootstrap intervals over seeds', shares(values)


def main(argv: Sequence[str] | None = None) -> None:
    """Print the answer to each question."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('sweep', metavar='SWEEP', help='the folder of `mmlape size-sweep --out`')
    try:
        values = read_sweep(parser.parse_args(argv).sweep)
    except Unfinished as unfinished:
        print(f'Not answered: {unfinished}.')
        return
    for question, table in answers(values):
        print(f'### {question}\n\n{table}\n')
    for run in without_share(values):
        print(f'- {run}: no mIoU on the trained canvas, so no share of it.')


if __name__ == '__main__':
    main()

#!/usr/bin/env python
"""The answers of `studies/fashion-mnist-replication.yml` from its runs: `python docs/results/replication.py WORK_DIR`.

This was written before any result was looked at, but for what is printed as not registered. A question is answered,
as registered, once all of its runs are finished, and not before. Top-1 is that on the test images after the last
epoch, in percent.
"""

import argparse
import contextlib
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence

from mmlape.console.tables import markdown_table, text_table
from mmlape.lab.analysis.gradient_norms import LAST, read_norms
from mmlape.lab.experiments.statistics import Difference, holm, paired
from mmlape.lab.runs.run import Run, read_arms

METRIC = 'accuracy/top1'
SEEDS = range(201, 221)
EIGHT, FIVE, THREE = SEEDS[:8], SEEDS[:5], SEEDS[:3]

Values = dict[int, float]
"""One number of each seed."""


class Unfinished(Exception):
    """Some runs of a question are not finished."""


class Runs:
    """The runs of the study, by arm."""

    def __init__(self, work_dir: str):
        self.arms = read_arms(work_dir)

    def _of(self, arm: str, seeds: Sequence[int]) -> list[Run]:
        runs = [run for run in self.arms.get(arm, ()) if run.seed in seeds and run.counts]
        if len(runs) < len(seeds):
            raise Unfinished(f'{len(runs)} of {len(seeds)} runs of {arm} are finished')
        return runs

    def top1(self, arm: str, seeds: Sequence[int]) -> Values:
        """Return the last top-1 of each seed."""
        return {run.seed: run.last.metrics[METRIC] for run in self._of(arm, seeds)}

    def stem_norm(self, arm: str, seeds: Sequence[int]) -> Values:
        """Return the logarithm of the stem's mean gradient norm over the last iterations."""
        folders = {run.folder.resolve(): run.seed for run in self._of(arm, seeds)}
        (norms,) = read_norms([next(iter(folders)).parent])
        stem = norms.by_depth(LAST)[:, norms.parts.index('patch_embed')]
        return {folders[folder]: math.log(norm) for folder, norm in zip(norms.runs, stem) if folder in folders}


def minus(values: Mapping[int, float], others: Mapping[int, float]) -> Values:
    """Return the differences over runs of one seed."""
    return {seed: value - others[seed] for seed, value in values.items()}


def primary(runs: Runs) -> Iterator[tuple[str, Difference]]:
    """Yield LaPE minus default on both models, corrected by Holm."""
    models = {'CVT': '', 'ViT-Lite': '-vit-lite'}
    family = [paired(runs.top1(f'lape{end}', SEEDS), runs.top1(f'default{end}', SEEDS)) for end in models.values()]
    yield from zip((f'{model}: LaPE - default' for model in models), holm(family), strict=True)


def joinings(runs: Runs) -> Iterator[tuple[str, Difference]]:
    """Yield lape-shared and unshared against the default and LaPE."""
    for model, end in (('CVT', ''), ('ViT-Lite', '-vit-lite')):
        for arm in ('lape-shared', 'unshared'):
            for other in ('default', 'lape'):
                values = [runs.top1(f'{name}{end}', EIGHT) for name in (arm, other)]
                yield f'{model}: {arm} - {other}', paired(*values)


def sinusoids(runs: Runs) -> Iterator[tuple[str, Difference]]:
    """Yield LaPE's gain over fixed sinusoids, over a learned PE, and the first minus the second."""
    fixed = runs.top1('sincos1d-lape', EIGHT), runs.top1('sincos1d', EIGHT)
    yield from gains(runs, fixed, ('fixed sinusoids', 'a learned PE'))


def depth(runs: Runs) -> Iterator[tuple[str, Difference]]:
    """Yield LaPE's gain in six layers, in two, and the first minus the second."""
    yield from gains(runs, (runs.top1('deep-lape', FIVE), runs.top1('deep', FIVE)), ('six layers', 'two layers'))


def gains(runs: Runs, pair: tuple[Values, Values], titles: tuple[str, str]) -> Iterator[tuple[str, Difference]]:
    """Yield LaPE's gain in a pair of arms, in the arms of the primary question, and the first minus the second."""
    seeds = list(pair[0])
    pairs = (pair, (runs.top1('lape', seeds), runs.top1('default', seeds)))
    for title, (lape, default) in zip(titles, pairs):
        yield f'CVT, {title}: LaPE - default', paired(lape, default)
    yield f'{titles[0]} minus {titles[1]}', paired(*(minus(*one) for one in pairs))


def stems(runs: Runs) -> Iterator[tuple[str, Difference]]:
    """Yield differences of accuracy, and of the logarithms of the stem's gradient norm, at patches of 7 and of 4."""
    norms = []
    for patch, end in ((7, '-p7'), (4, '-p4')):
        yield (
            f'patches of {patch}: dual - plain',
            paired(*(runs.top1(f'{arm}{end}', THREE) for arm in ('dual', 'stem'))),
        )
        norms.append([runs.stem_norm(f'{arm}{end}', THREE) for arm in ('dual', 'stem')])
        yield f"patches of {patch}: ln of the stem's gradient norm, dual - plain", paired(*norms[-1])
    yield 'the same, patches of 4 minus patches of 7', paired(minus(*norms[1]), minus(*norms[0]))


def layers(runs: Runs) -> Iterator[tuple[str, Difference]]:
    """Yield six layers minus two, of the default and of LaPE."""
    for arm, deep in (('default', 'deep'), ('lape', 'deep-lape')):
        yield f'CVT, {arm}: six layers - two', paired(runs.top1(deep, FIVE), runs.top1(arm, FIVE))


def pairing(runs: Runs) -> Iterator[str]:
    """Yield how far the runs of one seed of LaPE and of the default go together."""
    for model, end in (('CVT', ''), ('ViT-Lite', '-vit-lite')):
        lape, default = (runs.top1(f'{arm}{end}', SEEDS) for arm in ('lape', 'default'))
        both = statistics.correlation([lape[seed] for seed in SEEDS], [default[seed] for seed in SEEDS])
        spread = statistics.stdev(minus(lape, default).values())
        yield (
            f'- {model}: over the 20 seeds, LaPE and the default have a correlation of {both:.2f}, and their '
            f'differences a standard deviation of {spread:.2f}.'
        )


QUESTIONS = {
    'Primary: LaPE against the default': primary,
    '1. Other joinings': joinings,
    '2. Fixed sinusoids': sinusoids,
    '3. Six layers': depth,
    '4. Dual PatchNorm': stems,
    'Not registered: what six layers change': layers,
}


def answer(question: str, rows: Sequence[tuple[str, Difference]]) -> str:
    """Return the table of a question as Markdown."""
    heads = ['difference, runs of one seed', 'mean', '95 % interval', 'p', 'p (Holm)', 'seeds']
    cells = [
        (name, f'{one.mean:.3f}', f'{one.low:.3f} to {one.high:.3f}' if one.p is not None else one.note,
         *('' if p is None else f'{p:.2g}' for p in (one.p, one.holm)), one.n[0])
        for name, one in rows
    ]  # fmt: skip
    return f'### {question}\n\n{markdown_table(text_table(heads, cells))}'


def main(argv: Sequence[str] | None = None) -> None:
    """Print the answer to each question."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('work_dir', metavar='WORK_DIR', help='of the study: holds ARM/seed_N')
    runs = Runs(parser.parse_args(argv).work_dir)
    for question, rows in QUESTIONS.items():
        try:
            print(answer(question, list(rows(runs))))
        except Unfinished as unfinished:
            print(f'### {question}\n\nNot answered: {unfinished}.')
        print()
    with contextlib.suppress(Unfinished):
        print('\n'.join(pairing(runs)))


if __name__ == '__main__':
    main()

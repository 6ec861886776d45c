#!/usr/bin/env python
"""The answers of `studies/fashion-mnist-depth.yml` from its runs: `python docs/results/depth.py WORK_DIR`.

This was written before the first run of that study. A question is answered, as registered, once all of its runs are
finished, and not before. Top-1 is that on the test images after the last epoch, in percent. Runs of one seed in two
arms are no more alike than others (see the first study), so nothing is paired: all tests and intervals are Welch's.
"""

import argparse
import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from replication import Runs, Unfinished, answer
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.weightstats import CompareMeans, DescrStatsW

from mmlape.engine.hooks.pe_balance import TAG
from mmlape.experiments.statistics import Difference, welch
from mmlape.runs.curves import log_files, read_scalars
from mmlape.tables import markdown_table, text_table

SEEDS = range(301, 309)
FIVE = SEEDS[:5]
MARGIN = 0.4
"""Points of top-1: who is behind by less counts as not behind."""


class Hypothesis(NamedTuple):
    """A difference of two arms, and the bound on whose side it is expected."""

    title: str
    arm: str
    baseline: str
    side: str
    """'smaller' or 'larger' than the bound."""
    bound: float


HYPOTHESES = (
    Hypothesis('CVT: LaPE is behind the default', 'lape', 'default', 'smaller', 0.0),
    Hypothesis('ViT-Lite: LaPE is not behind the default', 'lape-vit-lite', 'default-vit-lite', 'larger', -MARGIN),
    Hypothesis('CVT: MPVG is not behind the default', 'mpvg', 'default', 'larger', -MARGIN),
)


class DepthRuns(Runs):
    """The runs of the study, by arm."""

    def values(self, arm: str, seeds: Sequence[int]) -> list[float]:
        """Return the last top-1 of each seed, in the order of the seeds."""
        return [self.top1(arm, seeds)[seed] for seed in seeds]

    def difference(self, arm: str, baseline: str, seeds: Sequence[int] = FIVE) -> Difference:
        """Return one arm minus another."""
        return welch(self.values(arm, seeds), self.values(baseline, seeds))

    def balance(self, arm: str, seeds: Sequence[int]) -> dict[str, float]:
        """Return the means over the seeds of what was logged last of each run's PE balance."""
        rows = [_last_balance(run.folder) for run in self._of(arm, seeds)]
        return {name: statistics.fmean(row[name] for row in rows) for name in rows[0]}


def _last_balance(folder) -> dict[str, float]:
    rows = [row for file in log_files(folder) for row in read_scalars(file) if any(key.startswith(TAG) for key in row)]
    if not rows:
        raise Unfinished(f'{folder} has no PE balance: train with --log-pe-balance')
    last = max(rows, key=lambda row: row['step'])
    return {key.removeprefix(TAG): value for key, value in last.items() if key.startswith(TAG)}


def primary(runs: DepthRuns) -> str:
    """Return the table of the three hypotheses: one-sided tests, corrected by Holm; intervals are two-sided."""
    found, p = [], []
    for one in HYPOTHESES:
        values, baseline = (runs.values(arm, SEEDS) for arm in (one.arm, one.baseline))
        means = CompareMeans(DescrStatsW(values), DescrStatsW(baseline))
        p.append(float(means.ttest_ind(one.side, usevar='unequal', value=one.bound)[1]))
        found.append(welch(values, baseline))
    held, corrected, _, _ = multipletests(p, method='holm')
    heads = ['hypothesis', 'mean', '95 % interval', 'tested', 'p, one-sided', 'p (Holm)', 'holds', 'seeds']
    cells = [
        (one.title, f'{difference.mean:.3f}', f'{difference.low:.3f} to {difference.high:.3f}',
         f'{"below" if one.side == "smaller" else "above"} {one.bound:g}', f'{plain:.2g}', f'{holm:.2g}',
         'yes' if yes else 'not shown', difference.n[0])
        for one, difference, plain, holm, yes in zip(HYPOTHESES, found, p, corrected, held, strict=True)
    ]  # fmt: skip
    return f'### Primary\n\n{markdown_table(text_table(heads, cells))}'


def models(runs: DepthRuns) -> Iterator[tuple[str, Difference]]:
    """Yield LaPE's gain in CVT minus that in ViT-Lite; a gain is the difference of two runs of one seed."""
    gains = [
        [lape - default for lape, default in zip(*(runs.values(f'{arm}{end}', SEEDS) for arm in ('lape', 'default')))]
        for end in ('', '-vit-lite')
    ]
    yield 'LaPE - default: CVT minus ViT-Lite', welch(*gains)


def joinings(runs: DepthRuns) -> Iterator[tuple[str, Difference]]:
    """Yield the other joinings against the default of the same model."""
    yield 'CVT: lape-shared - default', runs.difference('lape-shared', 'default')
    yield 'CVT: pvg - default', runs.difference('pvg', 'default')
    yield 'CVT: mpvg - pvg', runs.difference('mpvg', 'pvg')
    yield 'CVT: mpvg - lape', runs.difference('mpvg', 'lape')
    yield 'ViT-Lite: lape-shared - default', runs.difference('lape-shared-vit-lite', 'default-vit-lite')


def pooling(runs: DepthRuns) -> Iterator[tuple[str, Difference]]:
    """Yield LaPE and MPVG against the default where the mean of the tokens is pooled."""
    for arm in ('lape', 'mpvg'):
        yield f'mean of the tokens: {arm} - default', runs.difference(f'{arm}-mean', 'default-mean')


def rate(runs: DepthRuns) -> Iterator[tuple[str, Difference]]:
    """Yield LaPE against the default in CVT at the first study's rate, 4e-3."""
    yield 'CVT, both at 4e-3: LaPE - default', runs.difference('lape-4e-3', 'default-4e-3')


def balances(runs: DepthRuns) -> str:
    """Return what layers and last norm do with the PE at the beginning of the last epoch, means over the seeds."""
    rows = {arm: runs.balance(arm, SEEDS) for arm in ('default', 'lape', 'mpvg', 'default-vit-lite', 'lape-vit-lite')}
    columns = list(dict.fromkeys(name for row in rows.values() for name in row))
    cells = [(arm, *(f'{row[name]:.4f}' if name in row else '' for name in columns)) for arm, row in rows.items()]
    return f'### 5. What the layers do with the PE\n\n{markdown_table(text_table(["arm", *columns], cells))}'


SECONDARY: dict[str, Callable[[DepthRuns], Iterator[tuple[str, Difference]]]] = {
    '1. A class token or a pool': models,
    '2. Other joinings': joinings,
    '3. The mean of the tokens': pooling,
    '4. The rate of the first study': rate,
}


def main(argv: Sequence[str] | None = None) -> None:
    """Print the answer to each question."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('work_dir', metavar='WORK_DIR', help='of the study: holds ARM/seed_N')
    runs = DepthRuns(parser.parse_args(argv).work_dir)
    questions: dict[str, Callable[[], str]] = {'Primary': lambda: primary(runs)}
    for name, rows in SECONDARY.items():
        questions[name] = lambda name=name, rows=rows: answer(name, list(rows(runs)))
    questions['5. What the layers do with the PE'] = lambda: balances(runs)
    for name, text in questions.items():
        try:
            print(text())
        except Unfinished as unfinished:
            print(f'### {name}\n\nNot answered: {unfinished}.')
        print()


if __name__ == '__main__':
    main()

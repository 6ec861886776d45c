#!/usr/bin/env python
"""The answers of `studies/fashion-mnist-depth.yml` from its runs: `python docs/results/depth.py WORK_DIR`.

This was written before the first run of that study. A question is answered, as registered, once all of its runs are
finished, and not before. Top-1 is that on the test images after the last epoch, in percent.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from replication import Runs, Unfinished, answer, minus
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.weightstats import DescrStatsW

from mmlape.experiments.statistics import Difference, paired
from mmlape.tables import markdown_table, text_table

SEEDS = range(301, 309)
FIVE = SEEDS[:5]
MARGIN = 0.4
"""Points of top-1: who is behind by less counts as not behind."""


class Hypothesis(NamedTuple):
    """A difference of two arms over runs of one seed, and the bound on whose side it is expected."""

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


def primary(runs: Runs) -> str:
    """Return the table of the three hypotheses: one-sided tests, corrected by Holm."""
    rows, p = [], []
    for one in HYPOTHESES:
        values, baseline = (runs.top1(arm, SEEDS) for arm in (one.arm, one.baseline))
        differences = list(minus(values, baseline).values())
        p.append(float(DescrStatsW(differences).ttest_mean(one.bound, alternative=one.side)[1]))
        rows.append((one, paired(values, baseline)))
    held, corrected, _, _ = multipletests(p, method='holm')
    heads = ['hypothesis', 'mean', '95 % interval', 'tested', 'p, one-sided', 'p (Holm)', 'holds', 'seeds']
    cells = [
        (one.title, f'{found.mean:.3f}', f'{found.low:.3f} to {found.high:.3f}',
         f'{"below" if one.side == "smaller" else "above"} {one.bound:g}', f'{plain:.2g}', f'{holm:.2g}',
         'yes' if yes else 'not shown', found.n[0])
        for (one, found), plain, holm, yes in zip(rows, p, corrected, held, strict=True)
    ]  # fmt: skip
    return markdown_table(text_table(heads, cells))


def models(runs: Runs) -> Iterator[tuple[str, Difference]]:
    """Yield LaPE's gain in CVT minus that in ViT-Lite."""
    gains = [minus(runs.top1(f'lape{end}', SEEDS), runs.top1(f'default{end}', SEEDS)) for end in ('', '-vit-lite')]
    yield 'LaPE - default: CVT minus ViT-Lite', paired(*gains)


def joinings(runs: Runs) -> Iterator[tuple[str, Difference]]:
    """Yield the other joinings against the default, each at its own rate."""
    for title, end, arms in (('CVT', '', ('lape-shared', 'pvg')), ('ViT-Lite', '-vit-lite', ('lape-shared',))):
        for arm in arms:
            yield f'{title}: {arm} - default', paired(*(runs.top1(f'{one}{end}', FIVE) for one in (arm, 'default')))


def pooling(runs: Runs) -> Iterator[tuple[str, Difference]]:
    """Yield LaPE and MPVG against the default where the mean of the tokens is pooled."""
    for arm in ('lape', 'mpvg'):
        yield f'mean: {arm} - default', paired(*(runs.top1(f'{one}-mean', FIVE) for one in (arm, 'default')))


def rate(runs: Runs) -> Iterator[tuple[str, Difference]]:
    """Yield LaPE against the default at the first study's rate, 4e-3, in CVT."""
    pair = (runs.top1(f'{arm}-4e-3', FIVE) for arm in ('lape', 'default'))
    yield 'CVT, both at 4e-3: LaPE - default', paired(*pair)


SECONDARY: dict[str, Callable[[Runs], Iterator[tuple[str, Difference]]]] = {
    '1. A class token or a pool': models,
    '2. Other joinings': joinings,
    '3. The mean of the tokens': pooling,
    '4. The rate of the first study': rate,
}


def main(argv: Sequence[str] | None = None) -> None:
    """Print the answer to each question."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('work_dir', metavar='WORK_DIR', help='of the study: holds ARM/seed_N')
    runs = Runs(parser.parse_args(argv).work_dir)
    questions = {'Primary': lambda: f'### Primary\n\n{primary(runs)}'}
    questions |= {
        name: lambda name=name, rows=rows: answer(name, list(rows(runs))) for name, rows in SECONDARY.items()
    }
    for name, text in questions.items():
        try:
            print(text())
        except Unfinished as unfinished:
            print(f'### {name}\n\nNot answered: {unfinished}.')
        print()


if __name__ == '__main__':
    main()

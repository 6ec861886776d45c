#!/usr/bin/env python
"""The answers of `studies/fashion-mnist-depth.yml` from its runs: `python docs/results/depth.py WORK_DIR`.

This was written before the first run of that study. A question is answered, as registered, once all of its runs are
finished, and not before. Top-1 is that on the test images after the last epoch, in percent. Runs of one seed in two
arms are no more alike than others (see the first study), so they are not paired: all tests and intervals are Welch's.
"""

import argparse
import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

from replication import Runs, Unfinished
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.weightstats import CompareMeans, DescrStatsW

from mmlape.console.tables import markdown_table, text_table
from mmlape.lab.experiments.statistics import Difference, holm, welch
from mmlape.lab.runs.curves import log_files, read_scalars
from mmlape.projects.pe_figures.balance import TAG

SEEDS = {
    **dict.fromkeys(('default', 'lape', 'mpvg', 'default-vit-lite', 'lape-vit-lite'), range(301, 309)),
    **dict.fromkeys(('lape-shared', 'pvg', 'lape-shared-vit-lite'), range(301, 306)),
    **dict.fromkeys(('default-mean', 'lape-mean', 'mpvg-mean'), range(301, 306)),
}
"""The seeds of each arm."""
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
PAIRS = {
    '2. Other joinings': (
        ('lape-shared', 'default'),
        ('pvg', 'default'),
        ('mpvg', 'pvg'),
        ('mpvg', 'lape'),
        ('lape-shared-vit-lite', 'default-vit-lite'),
    ),
    '3. The mean of the tokens': (('lape-mean', 'default-mean'), ('mpvg-mean', 'default-mean')),
}
"""Which arms the secondary questions compare: the first minus the second."""


class Depth(Runs):
    """The runs of the study, by arm."""

    def values(self, arm: str) -> list[float]:
        """Return the last top-1 of each seed, in the order of the seeds."""
        top1 = self.top1(arm, SEEDS[arm])
        return [top1[seed] for seed in SEEDS[arm]]

    def difference(self, arm: str, baseline: str) -> Difference:
        """Return one arm minus another."""
        return welch(self.values(arm), self.values(baseline))

    def balance(self, arm: str) -> dict[str, float]:
        """Return the means over the seeds of what was measured last of each run's PE balance."""
        rows = [_last_balance(run.folder) for run in self._of(arm, SEEDS[arm])]
        return {name: statistics.fmean(row[name] for row in rows) for name in rows[0]}


def _last_balance(folder) -> dict[str, float]:
    rows = [row for file in log_files(folder) for row in read_scalars(file) if any(key.startswith(TAG) for key in row)]
    if not rows:
        raise Unfinished(f'{folder} has no PE balance: train with --log-pe-balance')
    last = max(rows, key=lambda row: row['step'])
    return {key.removeprefix(TAG): value for key, value in last.items() if key.startswith(TAG)}


def primary(runs: Depth) -> str:
    """Return the table of the three hypotheses: one-sided tests, corrected by Holm; intervals are two-sided."""
    found, p = [], []
    for one in HYPOTHESES:
        values, baseline = runs.values(one.arm), runs.values(one.baseline)
        means = CompareMeans(DescrStatsW(values), DescrStatsW(baseline))
        p.append(float(means.ttest_ind(one.side, usevar='unequal', value=one.bound)[1]))
        found.append(welch(values, baseline))
    held, corrected, _, _ = multipletests(p, method='holm')
    heads = ['hypothesis', 'mean', '95 % interval', 'tested', 'p, one-sided', 'p (Holm)', 'holds']
    cells = [
        (one.title, f'{difference.mean:.3f}', f'{difference.low:.3f} to {difference.high:.3f}',
         f'{"below" if one.side == "smaller" else "above"} {one.bound:g}', f'{plain:.2g}', f'{corrected_p:.2g}',
         'yes' if yes else 'not shown')
        for one, difference, plain, corrected_p, yes in zip(HYPOTHESES, found, p, corrected, held, strict=True)
    ]  # fmt: skip
    return markdown_table(text_table(heads, cells))


def models(runs: Depth) -> str:
    """Return LaPE's gain in CVT minus that in ViT-Lite.

    A gain is LaPE minus default of one seed: eight values of each model.
    """
    gains = [
        [lape - default for lape, default in zip(runs.values(f'lape{end}'), runs.values(f'default{end}'), strict=True)]
        for end in ('', '-vit-lite')
    ]
    return _table([('LaPE - default: CVT minus ViT-Lite', welch(*gains))])


def comparisons(runs: Depth, question: str) -> str:
    """Return the comparisons of a secondary question, corrected by Holm within it."""
    pairs = PAIRS[question]
    family = holm([runs.difference(*pair) for pair in pairs])
    return _table([(f'{arm} - {baseline}', one) for (arm, baseline), one in zip(pairs, family, strict=True)])


def _table(rows: Sequence[tuple[str, Difference]]) -> str:
    cells = [
        (name, f'{one.mean:.3f}', f'{one.low:.3f} to {one.high:.3f}' if one.p is not None else one.note,
         *('' if p is None else f'{p:.2g}' for p in (one.p, one.holm)), '{}, {}'.format(*one.n))
        for name, one in rows
    ]  # fmt: skip
    return markdown_table(text_table(['difference', 'mean', '95 % interval', 'p', 'p (Holm)', 'seeds'], cells))


def balances(runs: Depth) -> str:
    """Return what layers and last norm do with the PE at the beginning of the last epoch, means over the seeds."""
    rows = {arm: runs.balance(arm) for arm in SEEDS}
    columns = list(dict.fromkeys(name for row in rows.values() for name in row))
    cells = [(arm, *(f'{row[name]:.4f}' if name in row else '' for name in columns)) for arm, row in rows.items()]
    return markdown_table(text_table(['arm', *columns], cells))


QUESTIONS: dict[str, Callable[[Depth], str]] = {
    'Primary': primary,
    '1. A class token or a pool': models,
    **{question: lambda runs, question=question: comparisons(runs, question) for question in PAIRS},
    '4. What the layers do with the PE': balances,
}


def main(argv: Sequence[str] | None = None) -> None:
    """Print the answer to each question."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('work_dir', metavar='WORK_DIR', help='of the study: holds ARM/seed_N')
    runs = Depth(parser.parse_args(argv).work_dir)
    for question, table in QUESTIONS.items():
        try:
            answer = table(runs)
        except Unfinished as unfinished:
            answer = f'Not answered: {unfinished}.'
        print(f'### {question}\n\n{answer}\n')


if __name__ == '__main__':
    main()

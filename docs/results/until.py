#!/usr/bin/env python
"""The tables of until.md: `python docs/results/until.py [FOLDER ...]`, folders of archived runs to replay.

Which levels need the fewest seeds, how often a study without a difference decides wrongly, and where studies that have
run would have stopped.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy import stats

from mmlape.console.tables import markdown_table, text_table
from mmlape.lab.experiments.report.arms import average
from mmlape.lab.experiments.sequential import STUDIES, SequentialPlan, decide, expected_seeds, looks
from mmlape.lab.experiments.statistics import LEAST, seeds_needed
from mmlape.lab.runs.run import read_arms

DIFFERENCES = (0.5, 1.0, 1.5, 2.0, 3.0)
N = np.arange(LEAST, 21)
SHAPES = {'equal (Pocock)': N**0, 'growing with n': N / 20, 'growing with n squared': (N / 20) ** 2}
EVALUE = 'e-value (2310.03722)'
"""An anytime-valid t-test: a normal prior of deviation 1 for the effect, stopped at 1 / alpha."""
COARSE = ((50, 0.3), (200, 0.6), (2000, 3))
"""Images, and the deviation of the number of right ones."""


def coarse(images: int, std: float) -> Callable[[np.random.Generator, tuple], np.ndarray]:
    """Draw accuracies of so many images, whose mean is between two of them."""
    return lambda random, size: 100 * np.round(0.8 * images + 0.5 + std * random.normal(size=(2, *size))) / images


SPREADS = {
    'normal, equal': lambda random, size: random.normal(size=(2, *size)),
    'normal, 8 times': lambda random, size: random.normal(size=(2, *size)) * np.array([1, 8]).reshape(2, 1, 1),
    'skewed (log-normal)': lambda random, size: random.lognormal(size=(2, *size)),
    'heavy-tailed (t, 3 degrees)': lambda random, size: random.standard_t(3, size=(2, *size)),
    'skewed, the baseline a tenth': lambda random, size: (
        random.exponential(size=(2, *size)) * np.array([1, 0.1]).reshape(2, 1, 1) - np.array([1, 0.1]).reshape(2, 1, 1)
    ),
    **{f'{images} images, deviation {std:g}': coarse(images, std) for images, std in COARSE},
}


def statistics_of(values: np.ndarray, baseline: np.ndarray) -> np.ndarray:
    """Return Student's t of equal spreads with 3, 4, ... seeds, (studies, looks)."""
    n = np.arange(1, values.shape[1] + 1)
    sums = [(arm**2).cumsum(1) - arm.cumsum(1) ** 2 / n for arm in (values, baseline)]
    error = np.sqrt(sum(sums) / np.maximum(2 * n - 2, 1) * 2 / n)[:, LEAST - 1 :]
    return (values - baseline).cumsum(1)[:, LEAST - 1 :] / n[LEAST - 1 :] / error


def evalues(t: np.ndarray) -> np.ndarray:
    """Return the Bayes factor of the normal prior for each t."""
    n, freedom = N / 2, 2 * N - 2
    ratio = (1 + t**2 / freedom) / (1 + t**2 / freedom / (1 + n))
    return (1 + n) ** -0.5 * ratio ** ((freedom + 1) / 2)


def shapes() -> str:
    """Compare designs at an alpha of 0.05: mean seeds until 0 is excluded, and how often that happens by 20."""
    random = np.random.default_rng(3)
    p = {}
    for difference in (0.0, *DIFFERENCES):
        values, baseline = random.normal(size=(2, STUDIES, 20))
        p[difference] = statistics_of(values + difference, baseline)
    rows = []
    for name in (*SHAPES, EVALUE):
        stop = {}
        if name == EVALUE:
            stop = {difference: evalues(t) > 20 for difference, t in p.items()}
        else:
            level = {difference: 2 * stats.t.sf(np.abs(t), 2 * N - 2) / SHAPES[name] for difference, t in p.items()}
            bound = np.quantile(level[0.0].min(1), 0.05)
            stop = {difference: values <= bound for difference, values in level.items()}
        cells = []
        for difference in DIFFERENCES:
            found = stop[difference].any(1)
            seeds = np.where(found, stop[difference].argmax(1) + LEAST, 20).mean()
            cells.append(f'{seeds:.1f} ({found.mean():.0%})')
        rows.append((name, f'{stop[0.0].any(1).mean():.1%}', *cells))
    return markdown_table(text_table(('levels', 'wrong', *(f'd = {d:g}' for d in DIFFERENCES)), rows))


def beside_fixed() -> str:
    """Compare `--until` with a fixed number of seeds that finds the difference as often."""
    rows = []
    for difference in DIFFERENCES:
        seeds, share = expected_seeds(SequentialPlan(difference), difference, 1.0)
        fixed = seeds_needed(difference, 1.0, min(share, 0.999))
        rows.append((f'{difference:g}', f'{share:.1%}', f'{seeds:.1f}', fixed))
    return markdown_table(text_table(('d', 'found', '--until: mean seeds', 'fixed number of seeds'), rows))


def wrong() -> str:
    """Count studies without a difference that decide that there is one, by the look at which they do."""
    rows = []
    for name, spread in SPREADS.items():
        plan, random = SequentialPlan(1e-9), np.random.default_rng(1)
        seeds, better, worse = decide(plan, *spread(random, (2000, 20)))
        by = [((seeds <= n) & (better | worse)).mean() for n in (3, 5, 10, 20)]
        rows.append((name, *(f'{share:.1%}' for share in by)))
    return markdown_table(text_table(('values', 'by 3 seeds', '5', '10', '20'), rows))


def replay(folder: Path, margin: float, baseline: str) -> str:
    """Return where each arm would have stopped against the baseline, beside the interval of all of their seeds."""
    results = [average(name, runs, allow_software=True) for name, runs in read_arms(folder).items()]
    values = {result.name: result.values('last', result.metrics[0]) for result in results if result.metrics}
    rows = []
    for arm in (name for name in values if name != baseline):
        seeds = sorted(values[arm].keys() & values[baseline].keys())
        if len(seeds) < LEAST:
            continue
        found = looks(SequentialPlan(margin, max(len(seeds), LEAST)), values[arm], values[baseline], seeds)[-1]
        arms = ([by_seed[seed] for seed in seeds] for by_seed in (values[arm], values[baseline]))
        low, high = stats.ttest_ind(*arms, equal_var=False).confidence_interval()
        decision = found.decision or 'undecided'
        rows.append((arm, f'{found.n} of {len(seeds)}', decision, f'{low:+.2f} to {high:+.2f}'))
    return markdown_table(text_table((f'arm - {baseline}', 'seeds', 'decision', 'interval of all seeds'), rows))


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('folders', nargs='*', type=Path)
    parser.add_argument('--margin', type=float, default=0.4, help='in points; default: %(default)s')
    parser.add_argument('--baseline', default='default', help='an arm; default: %(default)s')
    args = parser.parse_args()
    for folder in args.folders:
        print(f'{folder.name}\n\n{replay(folder, args.margin, args.baseline)}\n')
    if not args.folders:
        print(f'{shapes()}\n\n{beside_fixed()}\n\n{wrong()}')


if __name__ == '__main__':
    main()

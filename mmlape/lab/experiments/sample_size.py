"""How many seeds a difference needs, from the spread of a pilot: what `mmlape sample-size` prints."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from mmlape.console.tables import text_table
from mmlape.errors import ConfigError, DataError
from mmlape.lab.evaluation.metric_names import label
from mmlape.lab.experiments.report.arms import average
from mmlape.lab.experiments.sequential import SequentialPlan, expected_seeds
from mmlape.lab.experiments.statistics import MOST, POWER, Spread, of_differences, pooled, seeds_needed
from mmlape.lab.runs.run import read_arms


def pilot_spread(
    work_dir: str | Path,
    arms: Sequence[str] | None = None,
    metric: str | None = None,
    paired: bool = False,
    allow_software: bool = False,
) -> tuple[Spread, str]:
    """Estimate the spread of the last evaluation from the finished runs below a work dir.

    Args:
        work_dir: Holds ``<arm>/seed_<S>``, or ``seed_<S>``.
        arms: Whose variances are averaged; default: all that have the metric.
        metric: The metric; default: the first one of the arms' task.
        paired: Whether to take the spread of the differences between two arms.
        allow_software: As in `averages.check_repeats`.

    Returns:
        The spread in points, and what it is of. It needs two finished seeds, and, if paired, two
        arms.
    """
    runs = read_arms(work_dir, arms)
    results = [average(name, seeds, allow_software=allow_software) for name, seeds in runs.items()]
    if metric is None:
        metrics = list(dict.fromkeys(result.metrics[0] for result in results if result.metrics))
        if len(metrics) != 1:
            choices = f'choose one of {", ".join(metrics)}' if metrics else 'no run has finished'
            raise ConfigError(f'--metric: {choices}')
        metric = metrics[0]
    values = {result.name: result.values('last', metric) for result in results}
    values = {name: by_seed for name, by_seed in values.items() if by_seed}
    if not values:
        names = sorted({name for result in results for name in result.summary.last.metrics})
        raise ConfigError(f'--metric {metric}: no finished run has it; there are: {", ".join(names) or "none"}')
    if paired and len(values) != 2:
        raise ConfigError(f'--paired needs two arms, not {len(values)}: choose them with --arms; {", ".join(values)}')
    by_arm = [list(by_seed.values()) for by_seed in values.values()]
    spread = of_differences(*values.values()) if paired else pooled(by_arm)
    if spread is None:
        raise DataError(f'{work_dir}: the spread needs two finished seeds')
    return spread, f'{label(metric)} of the last evaluation of {", ".join(values)}'


def sample_size_table(
    spread: Spread, differences: Sequence[float], power: float = POWER, paired: bool = False
) -> pd.DataFrame:
    """Build the table of seeds: a row per difference in points, a column per standard deviation.

    The columns are the spread's estimate, and the ends of its interval if it has one; unpaired, also the mean number
    of seeds of `multi-seed --until` the difference, and in how many studies of a hundred it finds it.
    """
    stds = (spread.std, *(spread.interval() or ()))
    rows = []
    for difference in differences:
        needed = [seeds_needed(difference, std, power, paired) for std in stds]
        row = [f'{difference:g}', *(seeds or f'> {MOST}' for seeds in needed)]
        if not paired:
            seeds, share = expected_seeds(SequentialPlan(abs(difference)), difference, spread.std)
            row.append(f'{seeds:.1f} ({share:.0%})')
        rows.append(row)
    until = [] if paired else [f'--until, at most {SequentialPlan.most}: mean (found)']
    return text_table(('difference', *(f'std {std:.2f}' for std in stds), *until), rows)

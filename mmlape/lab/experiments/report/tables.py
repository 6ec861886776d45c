"""The tables of a report, the same for Markdown, HTML and the terminal.

Averages, tests, cost, provenance.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby

import pandas as pd

from mmlape.console.tables import print_table, text_table
from mmlape.console.terminal import clock
from mmlape.lab.decoding import encode
from mmlape.lab.evaluation.metric_names import label
from mmlape.lab.experiments.averages import DASH, EVALUATIONS, interval, mean_std_n, number, probability
from mmlape.lab.experiments.report.arms import ArmResult
from mmlape.lab.experiments.report.report_content import Comparison, Report
from mmlape.lab.experiments.statistics import CONFIDENCE, DECISIONS, INTERVAL
from mmlape.lab.runs.identity import digest
from mmlape.lab.runs.schema import Identity, RunRecord

_AVERAGES = tuple(f'{which}: {head}' for which in EVALUATIONS for head in ('mean ± std (n)', INTERVAL))
_TESTS = (
    'difference',
    f"Welch's {INTERVAL}",
    'p',
    "Holm's p",
    'paired difference (seeds)',
    f'paired {INTERVAL}',
    'paired p',
    "paired Holm's p",
)


def results_table(report: Report) -> pd.DataFrame:
    """Build the table of all arms, baselines marked, with the paper's results where known."""
    rows = []
    for result in report.results:
        seeds = _seeds(result.summary.seeds) or 'none counts'
        model = f'{result.model.name}, {result.model.method}' if result.model.named else DASH
        name = result.name + ', baseline' * (result.name in report.baselines)
        for metric in result.metrics or (DASH,):
            head = (name, result.title or DASH, model, label(metric), seeds)
            printed = result.paper.results.get(metric, DASH) if result.paper else DASH
            rows.append((*head, *_averages(result, metric), printed))
    columns = ('arm', 'title', 'model', 'metric', 'seeds', *_AVERAGES, "paper's figure")
    table = _of_evaluations(text_table(columns, rows, 5), report.has_best)
    if (table["paper's figure"] == DASH).all():
        table = table.drop(columns="paper's figure")
    empty = [name for name in ('title', 'model') if set(table.index.get_level_values(name)) <= {DASH}]
    return table.droplevel(empty)


def _of_evaluations(table: pd.DataFrame, has_best: bool) -> pd.DataFrame:
    """Leave out the columns of best evaluations where there are none, and need not tell last from best."""
    if has_best:
        return table
    kept = table.drop(columns=[name for name in table if name.startswith('best: ')])
    return kept.rename(columns=lambda name: name.removeprefix('last: '))


def _seeds(seeds: Sequence[int]) -> str:
    """Return '121 to 125', or, of seeds with gaps, '1, 3'."""
    if len(seeds) > 2 and sorted(seeds) == list(range(min(seeds), max(seeds) + 1)):
        return f'{min(seeds)} to {max(seeds)}'
    return ', '.join(map(str, seeds))


def _averages(result: ArmResult, metric: str) -> tuple[str, ...]:
    """Return the cells of a metric: mean, deviation, n and interval of last, and of best."""
    entries = [result.summary.at(which).metrics.get(metric) for which in EVALUATIONS]
    return tuple(cell for entry in entries for cell in (mean_std_n(entry), interval(entry)))


def metrics_table(result: ArmResult) -> pd.DataFrame:
    """Build the table of every metric of an arm."""
    names = dict.fromkeys(name for which in EVALUATIONS for name in result.summary.at(which).metrics)
    rows = [(label(name), *_averages(result, name)) for name in names]
    return _of_evaluations(text_table(('metric', *_AVERAGES), rows), bool(result.summary.best.n))


def comparison_table(report: Report, which: str) -> pd.DataFrame:
    """Build the table of the comparisons at 'last' or at 'best'."""
    rows = []
    for compared in report.comparisons_at(which):
        title = report.title_of(compared.arm, compared.baseline)
        rows.append((title, label(compared.metric), *_tested(compared)))
    return text_table(('arm − baseline', 'metric', *_TESTS), rows, 2)


def comparison_lines(report: Report, known: Collection[tuple[str, str]] = ()) -> Iterator[str]:
    """Yield a line for each pair of arms: the difference of its first metric at 'last', its interval, the decision.

    A difference is found if Holm's p over all pairs and metrics is below 5 %.

    Args:
        report: The report.
        known: Pairs that are decided elsewhere, the folders of arm and baseline.
    """
    folders = {result.name: result.runs[0].folder.parent.name for result in report.results if result.runs}
    pairs = dict.fromkeys((compared.arm, compared.baseline) for compared in report.comparisons_at('last'))
    for arm, baseline in (pair for pair in pairs if tuple(map(folders.get, pair)) not in known):
        compared = next(one for one in report.comparisons_at('last') if (one.arm, one.baseline) == (arm, baseline))
        found, seeds = compared.welch, ' and '.join(map(str, compared.welch.n))
        decision = (
            '' if found.holm is None or found.holm >= 1 - CONFIDENCE else 'better' if found.mean > 0 else 'worse'
        )
        p = '' if found.holm is None else f", Holm's p {probability(found.holm)}"
        yield (
            f'{arm} {DECISIONS[decision]} {baseline}: {label(compared.metric)} {number(found.mean, "+.2f")} '
            f'({INTERVAL}: {interval(found, "+.2f")}{p}), {seeds} seeds'
        )


def class_table(classes: Sequence[Comparison]) -> pd.DataFrame:
    """Build the table of the classes of a pair of arms and a metric."""
    return text_table(('class', *_TESTS), [(str(compared.name), *_tested(compared)) for compared in classes])


def _tested(compared: Comparison) -> tuple[str, ...]:
    """Return the cells of a comparison: Welch's test, then the paired one."""
    cells = []
    for seeds, difference in (('', compared.welch), (f' ({compared.paired.n[0]})', compared.paired)):
        cells += [number(difference.mean, '+.2f') + seeds, interval(difference, '+.2f')]
        cells += [probability(difference.p), probability(difference.holm)]
    return tuple(cells)


def grouped_classes(report: Report) -> list[tuple[str, str, list[Comparison]]]:
    """Return title, metric and classes of each comparison of classes."""
    groups = groupby(report.classes, lambda compared: (compared.arm, compared.baseline, compared.metric))
    return [(report.title_of(arm, baseline), metric, list(group)) for (arm, baseline, metric), group in groups]


def cost_table(report: Report) -> pd.DataFrame:
    """Build the table of the cost of every arm that has runs."""
    rows = []
    for result in report.results:
        if not result.runs:
            continue
        count, paper, seconds = (result.parameters, result.paper, result.mean_cost(lambda cost: cost.train_seconds))
        flops = DASH
        if paper and paper.flops:
            flops = f'{paper.flops / 1e9:.2f} ({" x ".join(map(str, paper.size))})'
        rows.append((
            result.name,
            number(count and count / 1e6, '.3f'),
            flops,
            number(result.mean_cost(lambda cost: cost.peak_memory_mib), ',.0f'),
            number(result.mean_cost(lambda cost: cost.seconds_per_iter), '.3f'),
            DASH if seconds is None else clock(seconds),
            number(result.gpu_hours),
        ))  # fmt: skip
    runs = [run for result in report.results for run in result.counted]
    measured = ' or '.join(dict.fromkeys(run.cost.memory_kind for run in runs if run.cost.memory_kind))
    memory = f'peak memory (MiB{", " + measured if measured else ""})'
    columns = ('arm', 'parameters (M)', 'GFLOPs (one image)', memory, 's / iteration', 'a run (h:mm:ss)')
    return text_table((*columns, 'GPU hours, all runs'), rows)


def provenance_table(report: Report) -> pd.DataFrame:
    """Build the table of what each arm that has runs was trained from, with and on."""
    rows = []
    for result in report.results:
        if not result.runs:
            continue
        identity = result.identity or Identity()
        record = result.first.record if result.first else RunRecord()
        code, weights = identity.code, identity.checkpoint
        config = (record.config or '').rpartition('/')[2].removesuffix('.py')
        commit = f'(commit {code.commit[:9]})' if code.commit else ''
        rows.append((
            result.name,
            f'{config} {_short(identity.settings_sha256)}'.strip(),
            _seeds(result.summary.seeds) or DASH,
            _batch(record),
            identity.batch_policy or DASH,
            (identity.amp or 'fp32') if result.identity else DASH,
            f'{weights.name} {_short(weights.sha256)}'.strip() if weights else DASH,
            _short(digest(encode(identity.data))) if identity.data else 'not recorded',
            ' '.join(filter(None, (code.version, _short(code.digest), commit))) or DASH,
            _recorded(run.record.host for run in result.counted),
            _recorded(run.record.device for run in result.counted),
        ))  # fmt: skip
    columns = (
        'arm', 'config', 'seeds', 'total batch', 'batch policy', 'precision', 'starts from',
        'data', 'mmlape', 'host', 'device',
    )  # fmt: skip
    return text_table(columns, rows, len(columns))


def _batch(record: RunRecord) -> str:
    if record.total_batch is None:
        return DASH
    recorded = (record.world_size, record.images_per_process, record.accumulation)
    factors = ' x '.join(str(factor) for factor in recorded if factor is not None)
    return f'{factors} = {record.total_batch}' if factors else str(record.total_batch)


def _short(digest: str | None) -> str:
    return (digest or '')[:10]


def _recorded(values: Iterable[str | None]) -> str:
    return ', '.join(dict.fromkeys(filter(None, values))) or DASH


def print_results(report: Report) -> None:
    """Print the table of results without its long columns."""
    table = results_table(report).drop(columns=f'best: {INTERVAL}', errors='ignore')
    table = table.droplevel([name for name in ('title', 'model') if name in table.index.names])
    print_table(table, report.title, sections=1)

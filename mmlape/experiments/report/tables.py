"""The tables of a report as rows of text, the same for Markdown, HTML and the terminal."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from rich.table import Table as ConsoleTable
from rich.text import Text

from mmlape.evaluation.names import label
from mmlape.experiments.averages import EVALUATIONS
from mmlape.experiments.formats import DASH, interval, mean_std, number, probability
from mmlape.experiments.power import MOST, Spread, of_differences, pooled, seeds_needed
from mmlape.experiments.report.arms import ArmResult
from mmlape.experiments.report.comparisons import Comparison
from mmlape.experiments.report.content import Report
from mmlape.experiments.statistics import CONFIDENCE, NO_SPREAD

INTERVAL = f'{CONFIDENCE:.0%} interval'
DIFFERENCES = (0.5, 1.0, 2.0)
"""Points that the table of seeds asks about."""
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


@dataclass(frozen=True)
class Table:
    """A table of text.

    Attributes:
        columns: Its heads.
        rows: As long as ``columns``.
        text_columns: How many columns at the left are text; those to their right are numbers, aligned to the right.
    """

    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    text_columns: int = 1


def paper_figure(result: ArmResult, metric: str) -> str:
    """Return the paper's result for an arm's config, as the paper prints it."""
    return result.known.results.get(metric, DASH) if result.known else DASH


def _averages(result: ArmResult, metric: str) -> tuple[str, ...]:
    """Return the cells of a metric: mean, deviation, n and interval of last, and of best."""
    entries = [result.summary[which]['metrics'].get(metric) for which in EVALUATIONS]
    return tuple(cell for entry in entries for cell in (mean_std_n(entry), interval(entry)))


def mean_std_n(entry: Mapping | None) -> str:
    """Return '67.75 ± 0.94 (2)'."""
    text = mean_std(entry)
    return text if text == DASH else f'{text} ({entry["n"]})'


def results_table(report: Report) -> Table:
    """Build the table of all arms, with untrained values and the paper's results where they are known."""
    rows = []
    for result in report.results:
        seeds = ', '.join(map(str, result.summary['seeds'])) or 'none counts'
        model = f'{result.model.name}, {result.model.method}' if result.model.named else DASH
        for metric in result.metrics or (DASH,):
            head = (result.name, model, label(metric), seeds, number(result.untrained(metric)))
            rows.append((*head, *_averages(result, metric), paper_figure(result, metric)))
    columns = ('arm', 'model', 'metric', 'seeds', 'untrained', *_AVERAGES, "paper's figure")
    return _without_empty(Table(columns, rows, 4), ('model', 'untrained', "paper's figure"))


def early_table(report: Report) -> Table:
    """Build the table of earlier epochs that the papers quote."""
    rows = [
        (result.name, label(one.metric), str(one.epoch), mean_std_n(one.entry), interval(one.entry), one.paper)
        for result in report.results
        for one in result.early()
    ]
    return Table(('arm', 'metric', 'after epoch', 'mean ± std (n)', INTERVAL, "paper's figure"), rows, 2)


def metrics_table(result: ArmResult) -> Table:
    """Build the table of every metric of an arm."""
    known = dict.fromkeys(name for which in EVALUATIONS for name in result.summary[which]['metrics'])
    return Table(('metric', *_AVERAGES), [(label(name), *_averages(result, name)) for name in known])


def comparison_table(report: Report, which: str) -> Table:
    """Build the table of the comparisons at 'last' or at 'best'."""
    chosen = [one for one in report.comparisons if one.which == which]
    rows = [(report.title_of(one.arm, one.baseline), label(one.metric), *_tested(one)) for one in chosen]
    return Table(('arm − baseline', 'metric', *_TESTS), rows, 2)


def class_table(comparisons: Sequence[Comparison]) -> Table:
    """Build the table of the classes of a pair of arms and a metric."""
    return Table(('class', *_TESTS), [(str(one.name), *_tested(one)) for one in comparisons])


def _tested(one: Comparison) -> tuple[str, ...]:
    """Return the cells of a comparison: Welch's test, then the paired one."""
    cells = []
    for kind, difference in (('welch', one.welch), ('paired', one.paired)):
        seeds = f' ({difference.n[0]})' if kind == 'paired' else ''
        cells += [number(difference.mean, '+.2f') + seeds, interval(difference, '+.2f')]
        cells += [probability(difference.p), probability(difference.holm)]
    return tuple(cells)


def seeds_table(report: Report) -> Table:
    """Build the table of the seeds that differences need in either test, from the spread of the compared arms."""
    rows = []
    for one in (one for one in report.comparisons if one.which == 'last'):
        arms = [report.result(name).values('last', one.metric) for name in (one.arm, one.baseline)]
        head = (report.title_of(one.arm, one.baseline), label(one.metric))
        spreads = (
            ('unpaired', one.welch, pooled([list(values.values()) for values in arms])),
            ('paired', one.paired, of_differences(*arms)),
        )
        for test, difference, spread in spreads:
            if spread is not None and difference.note != NO_SPREAD and spread.std:
                rows.append((*head, test, *_needed(spread, test == 'paired')))
    heads = [f'to find {difference:g} points' for difference in DIFFERENCES]
    return Table(('arm − baseline', 'metric', 'test', f'std ({INTERVAL})', *heads), rows, 3)


def _needed(spread: Spread, paired: bool) -> Iterator[str]:
    """Yield the deviation, and '12 (5 to 90)' a difference: for the estimate, and for the ends of its interval."""
    low, high = spread.interval()
    yield f'{number(spread.std)} ({number(low)} to {number(high)})'
    for difference in DIFFERENCES:
        seeds = [seeds_needed(difference, std, paired=paired) or f'> {MOST}' for std in (spread.std, low, high)]
        yield '{} ({} to {})'.format(*seeds)


def grouped_classes(report: Report) -> list[tuple[str, str, list[Comparison]]]:
    """Return title, metric and classes of each comparison of classes."""
    groups = groupby(report.classes, lambda one: (one.arm, one.baseline, one.metric))
    return [(report.title_of(arm, baseline), metric, list(group)) for (arm, baseline, metric), group in groups]


def console_table(report: Report) -> ConsoleTable:
    """Build the table of results for the terminal, without its long columns."""
    table, found = _without(results_table(report), ('model', f'best: {INTERVAL}')), ConsoleTable()
    found.title = Text(report.title)
    for place, column in enumerate(table.columns):
        found.add_column(column, justify='left' if place < table.text_columns else 'right', overflow='fold')
    for _, rows in groupby(table.rows, lambda row: row[0]):
        for row in rows:
            found.add_row(*map(Text, row))
        found.add_section()
    return found


def _without_empty(table: Table, optional: Sequence[str]) -> Table:
    """Drop those of the optional columns that are empty."""
    columns = [(column, [row[place] for row in table.rows]) for place, column in enumerate(table.columns)]
    return _without(table, [name for name, cells in columns if name in optional and set(cells) <= {DASH}])


def _without(table: Table, names: Sequence[str]) -> Table:
    """Drop columns."""
    kept = [place for place, column in enumerate(table.columns) if column not in names]
    columns, *rows = (tuple(row[place] for place in kept) for row in (table.columns, *table.rows))
    return Table(columns, rows, sum(place < table.text_columns for place in kept))

"""The tables of a report as rows of text, the same for Markdown, HTML and the terminal."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

from rich.table import Table as ConsoleTable
from rich.text import Text

from mmlape.evaluation.names import label
from mmlape.experiments.averages import EVALUATIONS
from mmlape.experiments.power import POWER, pooled, seeds_needed
from mmlape.experiments.report.arms import Result, untrained
from mmlape.experiments.report.comparisons import Comparison
from mmlape.experiments.report.content import Report
from mmlape.experiments.statistics import CONFIDENCE, NO_SPREAD, Difference

DASH = '–'
INTERVAL = f'{CONFIDENCE:.0%} interval'
DIFFERENCES = (0.5, 1.0, 2.0)
"""Points that the table of seeds asks about."""


@dataclass(frozen=True)
class Table:
    """A table of text.

    Attributes:
        columns: Its heads.
        rows: As long as ``columns``.
        words: How many columns at the left hold words; numbers to their right are aligned to the right.
    """

    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    words: int = 1


def number(value: float | None, digits: int = 2, sign: bool = False) -> str:
    """A number as text; a dash for None."""
    return DASH if value is None else f'{value:{"+" if sign else ""}.{digits}f}'


def probability(p: float | None) -> str:
    """A p value as text."""
    return DASH if p is None else '< 0.001' if p < 0.001 else f'{p:.3f}'


def interval(entry: dict | Difference, sign: bool = False) -> str:
    """An interval as text, or why there is none."""
    fields = entry if isinstance(entry, dict) else vars(entry)
    if fields['low'] is None:
        return f'none, {fields["note"]}'
    return f'{number(fields["low"], sign=sign)} to {number(fields["high"], sign=sign)}'


def spread(entry: dict | None) -> str:
    """'67.75 ± 0.94 (2)'; without the deviation for a single run."""
    if entry is None or entry['mean'] is None:
        return DASH
    deviation = '' if entry['std'] is None else f' ± {number(entry["std"])}'
    return f'{number(entry["mean"])}{deviation} ({entry["n"]})'


def paper_figure(result: Result, metric: str) -> str:
    """What the paper has for an arm's config, as it prints it."""
    return result.known.results.get(metric, DASH) if result.known else DASH


def results_table(report: Report) -> Table:
    """The metrics of every arm, trained beside untrained where that is known, and the paper's figures if there are."""
    rows = []
    for result in report.results:
        seeds = ', '.join(map(str, result.summary['seeds'])) or 'none counts'
        model = DASH if result.model.method == DASH else f'{result.model.name}, {result.model.method}'
        for metric in result.metrics or (DASH,):
            entries = [result.summary[which]['metrics'].get(metric) for which in EVALUATIONS]
            limits = [interval(entry) if entry else DASH for entry in entries]
            cells = (spread(entries[0]), limits[0], spread(entries[1]), limits[1])
            start = number(untrained(result, metric))
            rows.append((result.name, model, label(metric), seeds, start, *cells, paper_figure(result, metric)))
    heads = [f'{which}: {words}' for which in EVALUATIONS for words in ('mean ± std (n)', INTERVAL)]
    columns = ('arm', 'model', 'metric', 'seeds', 'untrained', *heads, "paper's figure")
    return _without_empty(Table(columns, rows, 4), ('model', 'untrained', "paper's figure"))


def metrics_table(result: Result) -> Table:
    """Every metric of an arm."""
    known = dict.fromkeys(name for which in EVALUATIONS for name in result.summary[which]['metrics'])
    rows = []
    for name in known:
        entries = [result.summary[which]['metrics'].get(name) for which in EVALUATIONS]
        cells = [cell for entry in entries for cell in (spread(entry), interval(entry) if entry else DASH)]
        rows.append((label(name), *cells))
    heads = [f'{which}: {words}' for which in EVALUATIONS for words in ('mean ± std (n)', INTERVAL)]
    return Table(('metric', *heads), rows)


def comparison_table(report: Report, which: str) -> Table:
    """The comparisons at 'last' or at 'best', with Welch's test and the paired one."""
    chosen = [one for one in report.comparisons if one.which == which]
    rows = [(report.title_of(one.arm, one.baseline), label(one.metric), *_tested(one)) for one in chosen]
    return Table(('arm − baseline', 'metric', *_TESTS), rows, 2)


def class_table(comparisons: Sequence[Comparison]) -> Table:
    """The classes of a pair of arms and a metric."""
    return Table(('class', *_TESTS), [(str(one.name), *_tested(one)) for one in comparisons])


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


def _tested(one: Comparison) -> tuple[str, ...]:
    cells = []
    for kind, difference in (('welch', one.welch), ('paired', one.paired)):
        mean = number(difference.mean, sign=True)
        pairs = f' ({difference.n[0]})' if kind == 'paired' else ''
        cells += [mean + pairs, interval(difference, sign=True)]
        cells += [probability(difference.p), probability(difference.holm)]
    return tuple(cells)


def seeds_table(report: Report) -> Table:
    """How many seeds an arm a difference needs, from the spread of the arms that are compared."""
    rows = []
    for one in (one for one in report.comparisons if one.which == 'last'):
        arms = [report.result(name).values('last', one.metric) for name in (one.arm, one.baseline)]
        found = pooled([list(values.values()) for values in arms])
        if found is None or one.welch.note == NO_SPREAD or not found.std:
            continue
        low, high = found.interval()
        std = f'{number(found.std)} ({number(low)} to {number(high)})'
        needed = [_needed(difference, (found.std, low, high)) for difference in DIFFERENCES]
        rows.append((report.title_of(one.arm, one.baseline), label(one.metric), std, *needed))
    heads = [f'to find {difference:g} points' for difference in DIFFERENCES]
    return Table(('arm − baseline', 'metric', f'std ({INTERVAL})', *heads), rows, 2)


def _needed(difference: float, stds: tuple[float, float, float]) -> str:
    """'12 (5 to 90)': for the deviation that was found, and for the ends of its interval."""
    middle, low, high = (seeds_needed(difference, std, POWER) or '> 1000000' for std in stds)
    return f'{middle} ({low} to {high})'


def grouped_classes(report: Report) -> list[tuple[str, str, list[Comparison]]]:
    """Title, metric and classes of each comparison of classes."""
    key: Callable = lambda one: (one.arm, one.baseline, one.metric)  # noqa: E731
    return [
        (report.title_of(arm, baseline), metric, list(group))
        for (arm, baseline, metric), group in groupby(report.classes, key)
    ]


def console_table(report: Report) -> ConsoleTable:
    """The results for the terminal, without what makes lines long."""
    table, found = _without(results_table(report), ('model', f'best: {INTERVAL}')), ConsoleTable()
    found.title = Text(report.title)
    for place, column in enumerate(table.columns):
        found.add_column(column, justify='left' if place < table.words else 'right', overflow='fold')
    for _, rows in groupby(table.rows, lambda row: row[0]):
        for row in rows:
            found.add_row(*map(Text, row))
        found.add_section()
    return found


def _without_empty(table: Table, optional: Sequence[str]) -> Table:
    """A table without those of its optional columns that say nothing."""
    columns = [(column, [row[place] for row in table.rows]) for place, column in enumerate(table.columns)]
    return _without(table, [name for name, cells in columns if name in optional and set(cells) <= {DASH}])


def _without(table: Table, names: Sequence[str]) -> Table:
    """A table without these columns."""
    kept = [place for place, column in enumerate(table.columns) if column not in names]
    columns, *rows = (tuple(row[place] for place in kept) for row in (table.columns, *table.rows))
    return Table(columns, rows, sum(place < table.words for place in kept))

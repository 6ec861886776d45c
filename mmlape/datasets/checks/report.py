"""The full check's report: a progress bar while it runs, then tables and JSON."""

from pathlib import Path

from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from mmlape.console import console
from mmlape.datasets.checks.full import FullReport
from mmlape.datasets.formats.base import DataSummary
from mmlape.datasets.issues import ERROR
from mmlape.files import write_json

EXAMPLES_SHOWN = 3  # in the table; JSON has a few more
RAREST_SHOWN = 3


class RichProgress:
    """A progress bar of the current dataset, with the time left; on stderr, and only on a terminal."""

    def __init__(self) -> None:
        stderr = console(stderr=True)
        columns = [TextColumn('{task.description}'), BarColumn(), MofNCompleteColumn()]
        columns += [TimeElapsedColumn(), TimeRemainingColumn()]
        self._bar = Progress(*columns, console=stderr, disable=not stderr.is_terminal)
        self._task = None

    def __enter__(self) -> 'RichProgress':
        self._bar.start()
        return self

    def __exit__(self, *args) -> None:
        self._bar.stop()

    def start(self, description: str, total: int) -> None:
        """Start on a dataset with this many images; 0 while its annotations are read."""
        if self._task is not None:
            self._bar.remove_task(self._task)
        self._task = self._bar.add_task(escape(description), total=total or None)

    def advance(self) -> None:
        """Count one image."""
        self._bar.advance(self._task)


def print_report(report: FullReport) -> None:
    """Print the contents of the datasets, and their issues."""
    out = console()
    table = Table('data', 'path', 'rarest classes')
    for head in ('images', 'checked', 'classes seen'):
        table.add_column(head, justify='right')
    for summary, checked in zip(report.summaries, report.checked):
        images = '-' if summary.images is None else f'{summary.images:,}'
        seen = f'{len(summary.seen)} of {summary.num_classes}'
        facts = ''.join(f'\n{what}: {count:,}' for what, count in summary.facts.items())
        path = escape(summary.path + facts)
        table.add_row(summary.split, path, escape(_rarest(summary)), images, f'{checked:,}', seen)
    if report.summaries:
        out.print(table)
    else:
        out.print('no data on this machine of a known format: nothing was checked')
    if len(report.issues):
        table = Table('', 'data', 'issue', 'count', 'examples', show_lines=True)
        for group in report.issues:
            colour = 'red' if group.severity == ERROR else 'yellow'
            examples = '\n'.join(group.examples[:EXAMPLES_SHOWN])
            table.add_row(
                f'[{colour}]{group.severity}[/]', group.split, group.kind, f'{group.count:,}', escape(examples)
            )
        out.print(table)
    errors = len(report.issues.errors)
    warnings = len(report.issues) - errors
    interrupted = 'interrupted after ' if report.interrupted else ''
    counts = f'{_number(errors, "error")}, {_number(warnings, "warning")}'
    out.print(f'{interrupted}{sum(report.checked):,} images in {report.seconds:.0f} s: {counts}')


def _number(count: int, what: str) -> str:
    return f'{count} kind{"s" * (count != 1)} of {what}'


def _rarest(summary: DataSummary) -> str:
    """Return the classes that occur least often, with their counts."""
    counts = sorted((count, label) for label, count in summary.labels.items() if label < len(summary.classes))
    return '\n'.join(f'{summary.classes[label]}: {count:,}' for count, label in counts[:RAREST_SHOWN])


def write_report(report: FullReport, config: str, path: str | Path) -> None:
    """Write everything as JSON."""
    data = []
    for summary, checked in zip(report.summaries, report.checked):
        row = {name: getattr(summary, name) for name in ('split', 'path', 'images', 'num_classes')}
        classes = {name: summary.labels[label] for label, name in enumerate(summary.classes)}
        data.append({**row, 'checked': checked, 'classes': classes, **summary.facts})
    content = dict(
        config=config,
        interrupted=report.interrupted,
        seconds=round(report.seconds, 1),
        errors=len(report.issues.errors),
        data=data,
        issues=[vars(group) for group in report.issues],
    )
    write_json(path, content)

"""The full check's report: a progress bar while it runs, then tables and JSON."""

import json
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from mmlape.datasets.checks.base import ERROR, DataSummary
from mmlape.datasets.checks.full import FullReport

SHOWN = 3  # examples of a finding in the table; JSON has a few more
RAREST = 3


class RichProgress:
    """A bar for the data set that is being looked at, with the time left; on stderr, and only on a terminal."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        self._bar = Progress(
            TextColumn('{task.description}'), *columns, console=console, disable=not console.is_terminal
        )
        self._task = None

    def __enter__(self) -> 'RichProgress':
        self._bar.start()
        return self

    def __exit__(self, *args) -> None:
        self._bar.stop()

    def begin(self, what: str, total: int) -> None:
        """A data set with this many pictures comes next; 0 means that its annotations are read first."""
        if self._task is not None:
            self._bar.remove_task(self._task)
        self._task = self._bar.add_task(escape(what), total=total or None)

    def advance(self) -> None:
        """One picture is done."""
        self._bar.advance(self._task)


def print_report(report: FullReport) -> None:
    """Prints what the data sets hold, and what is wrong with them."""
    console = Console()
    console = console if console.is_terminal else Console(width=140)
    table = Table('data', 'path', 'rarest classes')
    for head in ('images', 'looked at', 'classes seen'):
        table.add_column(head, justify='right')
    for summary, looked_at in zip(report.summaries, report.looked_at):
        images = '-' if summary.images is None else f'{summary.images:,}'
        seen = f'{len(summary.seen)} of {summary.num_classes}'
        facts = ''.join(f'\n{what}: {count:,}' for what, count in summary.facts.items())
        table.add_row(
            summary.split, escape(summary.path + facts), escape(_rarest(summary)), images, f'{looked_at:,}', seen
        )
    if report.summaries:
        console.print(table)
    else:
        console.print("no data on this machine in COCO's, ADE20K's or ImageNet's layout: nothing was looked at")
    if len(report.findings):
        table = Table('', 'data', 'what', 'count', 'examples', show_lines=True)
        for finding in report.findings:
            colour = 'red' if finding.severity == ERROR else 'yellow'
            examples = '\n'.join(finding.examples[:SHOWN])
            table.add_row(
                f'[{colour}]{finding.severity}[/]', finding.split, finding.kind, f'{finding.count:,}', escape(examples)
            )
        console.print(table)
    errors, looked_at = len(report.findings.errors), sum(report.looked_at)
    warnings = len(report.findings) - errors
    ended = 'interrupted after ' if report.interrupted else ''
    counts = f'{_number(errors, "error")}, {_number(warnings, "warning")}'
    console.print(f'{ended}{looked_at:,} pictures in {report.seconds:.0f} s: {counts}')


def _number(count: int, what: str) -> str:
    return f'{count} kind{"s" * (count != 1)} of {what}'


def _rarest(summary: DataSummary) -> str:
    """The classes met least often, with their counts."""
    counts = sorted((count, label) for label, count in summary.labels.items() if label < len(summary.classes))
    return '\n'.join(f'{summary.classes[label]}: {count:,}' for count, label in counts[:RAREST])


def write_report(report: FullReport, config: str, path: str | Path) -> None:
    """Writes everything as JSON."""
    data = [
        dict(
            split=summary.split,
            path=summary.path,
            images=summary.images,
            looked_at=looked_at,
            num_classes=summary.num_classes,
            classes={name: summary.labels[label] for label, name in enumerate(summary.classes)},
            **summary.facts,
        )
        for summary, looked_at in zip(report.summaries, report.looked_at)
    ]
    content = dict(
        config=config,
        interrupted=report.interrupted,
        seconds=round(report.seconds, 1),
        errors=len(report.findings.errors),
        data=data,
        findings=[vars(finding) for finding in report.findings],
    )
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(json.dumps(content, indent=2) + '\n')

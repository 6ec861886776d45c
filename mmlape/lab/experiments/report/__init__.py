"""The report of an experiment: averages, differences, curves, classes, cost and provenance, in every usual format.

``index.html`` is one self-contained page, ``report.md`` Markdown beside its figures, ``tables.tex``
the tables of a paper (``report.tex`` is a document around them), ``report.json`` and three CSV
tables hold the numbers.
"""

from collections.abc import Sequence
from pathlib import Path

from mmlape.console.page import Element, write_page
from mmlape.console.tables import write_csv
from mmlape.errors import ConfigError, DataError
from mmlape.files import write_json
from mmlape.lab.experiments.report.arms import average
from mmlape.lab.experiments.report.data import CSV_COLUMNS, csv_rows, report_data
from mmlape.lab.experiments.report.document import OPEN, sections, write_latex, write_markdown
from mmlape.lab.experiments.report.report_content import Report, build
from mmlape.lab.experiments.report.tables import comparison_lines, print_results
from mmlape.lab.runs.run import read_arms

__all__ = ['Report', 'average', 'build', 'comparison_lines', 'print_results', 'report_work_dir', 'write_report']


def write_report(report: Report, folder: str | Path) -> list[Path]:
    """Write a report in all its formats into a folder; return the files, the page first.

    Raises:
        DataError: The folder cannot be written to.
    """
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        parts = sections(report, folder)
        return [
            write_page(report.title, parts, OPEN, folder / 'index.html'),
            write_markdown(report, parts, folder / 'report.md'),
            *write_latex(report, folder),
            *write_data(report, folder),
        ]
    except OSError as error:
        raise DataError(f'cannot write the report into {folder}: {error}') from error


def write_data(report: Report, folder: Path) -> list[Path]:
    """Write ``report.json``, and its views ``values.csv``, ``estimates.csv`` and ``comparisons.csv``."""
    content = report_data(report)
    files = [folder / 'report.json']
    write_json(files[0], content)
    for name, rows in csv_rows(content).items():
        files.append(folder / f'{name}.csv')
        write_csv(files[-1], CSV_COLUMNS[name], rows)
    return files


def report_work_dir(
    work_dir: str | Path,
    out: str | Path | None = None,
    title: str | None = None,
    names: Sequence[str] | None = None,
    baseline: str | None = None,
    metrics: Sequence[str] | None = None,
    allow_software: bool = False,
    first: Sequence[Element] = (),
    usual: str | None = None,
) -> tuple[Report, list[Path]]:
    """Average and compare the arms below a work dir, and write the report.

    Return it, and its files. ``names`` are those of the arms, in this order (default: all),
    ``metrics`` those to compare (default: the tasks'), ``usual`` the folder of the arm that is
    the baseline if it is among them and none is given; see `build` for the others.

    Raises:
        DataError: No run has finished, runs of an arm are not repeats of each other, or files
            cannot be written.
        ConfigError: An arm or a metric does not exist.
    """
    arms = read_arms(work_dir, names)
    if not any(run.counts for runs in arms.values() for run in runs):
        states = '; '.join(f'{name}, seed {run.seed}: {run.outcome}' for name, runs in arms.items() for run in runs)
        raise DataError(f'no run in {work_dir} has finished, so there is nothing to report: {states}')
    folder = Path(work_dir)
    if usual and baseline is None:
        baseline = next((name for name, runs in arms.items() if runs[0].folder.parent == folder / usual), None)
    results = [average(name, runs, metrics, allow_software=allow_software) for name, runs in arms.items()]
    known = sorted({name for result in results for name in result.summary.last.metrics})
    unknown = [name for name in metrics or () if name not in known]
    if unknown:
        raise ConfigError(f'--metric {" ".join(unknown)}: no run has it; there are: {", ".join(known)}')
    studies = {result.study for result in results}
    title = title or (studies.pop() if len(studies) == 1 else '') or folder.resolve().name
    report = build(results, title, baseline, first=first)
    return report, write_report(report, Path(out) if out else folder / 'report')

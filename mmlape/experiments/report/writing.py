"""A report written in all its formats."""

from pathlib import Path

from mmlape.errors import DataError
from mmlape.experiments.report.content import Report
from mmlape.experiments.report.data import write_data
from mmlape.experiments.report.document import write_html, write_markdown
from mmlape.experiments.report.figures import draw
from mmlape.experiments.report.fractions import plot_fractions
from mmlape.experiments.report.latex import write_latex


def write_report(report: Report, folder: str | Path) -> list[Path]:
    """Write a report in all its formats.

    Args:
        report: Its content, from `build`.
        folder: Receives the files; created if needed.

    Returns:
        The files, the page first.

    Raises:
        DataError: The folder cannot be written to.
    """
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        drawings = draw(report, folder)
        drawings.curves.update(plot_fractions(report, folder))
        return [
            write_html(report, folder / 'index.html', drawings),
            write_markdown(report, folder / 'report.md', drawings),
            *write_latex(report, folder),
            *write_data(report, folder),
        ]
    except OSError as error:
        raise DataError(f'cannot write the report into {folder}: {error}') from error

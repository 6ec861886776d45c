"""The report of an experiment: averages, differences, curves, classes, cost and origin, in every usual format.

``index.html`` is one self-contained page, ``report.md`` Markdown beside its drawings, ``tables.tex`` the tables of a
paper (``report.tex`` is a document around them), ``report.json`` and three CSV tables hold the numbers.
"""

from pathlib import Path

from mmlape.errors import DataError
from mmlape.experiments.report.arms import Arm
from mmlape.experiments.report.content import Report, build
from mmlape.experiments.report.data import write_data
from mmlape.experiments.report.figures import draw
from mmlape.experiments.report.html import write_html
from mmlape.experiments.report.latex import write_latex
from mmlape.experiments.report.markdown import write_markdown
from mmlape.experiments.report.tables import console_table

__all__ = ['Arm', 'Report', 'build', 'console_table', 'write_report']


def write_report(report: Report, folder: str | Path) -> list[Path]:
    """Writes a report in all its formats.

    Args:
        report: Its contents, from `build`.
        folder: Where the files go; made if it is not there.

    Returns:
        The files, the page first.

    Raises:
        DataError: The folder cannot be written to.
    """
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        drawings = draw(report, folder)
        return [
            write_html(report, folder / 'index.html', drawings),
            write_markdown(report, folder / 'report.md', drawings),
            *write_latex(report, folder),
            *write_data(report, folder),
        ]
    except OSError as error:
        raise DataError(f'cannot write the report into {folder}: {error}') from error

"""The report of an experiment: averages, differences, curves, classes, cost and provenance, in every usual format.

``index.html`` is one self-contained page, ``report.md`` Markdown beside its figures, ``tables.tex``
the tables of a paper (``report.tex`` is a document around them), ``report.json`` and three CSV
tables hold the numbers.
"""

from mmlape.lab.experiments.report.arms import ArmRuns
from mmlape.lab.experiments.report.content import Report, build, check_baseline
from mmlape.lab.experiments.report.tables import console_table
from mmlape.lab.experiments.report.writing import report_work_dir, write_report

__all__ = ['ArmRuns', 'Report', 'build', 'check_baseline', 'console_table', 'report_work_dir', 'write_report']

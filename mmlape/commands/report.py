"""Average the finished runs of every arm below a work dir, compare the arms, and write a page (index.html), Markdown,
LaTeX, CSV and JSON: means, deviations and 95 % intervals, differences with p and correction, curves, classes, cost and
provenance. Runs that do not count are listed, and make the status 1."""

import argparse

from mmlape.console.quiet import say
from mmlape.lab.config.command_options import add_more


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add('work_dir', metavar='WORK_DIR', help='holds <arm>/seed_<s>, or runs of `mmlape train`; or one of them')
    add('--arms', nargs='+', metavar='ARM', help="which, in this order, or patterns such as 'rms*'; default: all")
    add(
        '--baseline',
        metavar='ARM',
        help='the arm to compare with; default: that of --until, else the default PE, model by model',
    )
    add('--metric', nargs='+', metavar='KEY', help="such as mIoU coco/bbox_mAP; default: the papers' metrics")
    add('--out', metavar='DIR', help='default: WORK_DIR/report')
    more = add_more(parser)
    more.add_argument('--title', metavar='TEXT', help='default: the name of the work dir')
    more.add_argument(
        '--allow-different-software',
        action='store_true',
        help="average runs of one arm even if this package's code or the stack changed between them",
    )


def run(args: argparse.Namespace) -> int:
    """Write the report and print its table; return 1 if a run does not count."""
    from mmlape.lab.experiments.report import comparison_lines, print_results, report_work_dir
    from mmlape.lab.experiments.until import parts, read_until

    until = read_until(args.work_dir)
    verdicts = until.verdicts() if until else []
    report, files = report_work_dir(
        args.work_dir,
        args.out,
        args.title,
        args.arms,
        args.baseline,
        args.metric,
        args.allow_different_software,
        first=parts(verdicts) if verdicts else (),
        usual=until.baseline if until else None,
    )
    print_results(report)
    if report.baseline_line:
        say(report.baseline_line)
    pairs = [(verdict.arm, verdict.baseline) for verdict in verdicts]
    for line in (*verdicts, *comparison_lines(report, pairs)):
        say(str(line))
    for line in report.excluded:
        say(f'not counted: {line}')
    for line in report.warnings:
        say(f'warning: {line}')
    print(f'wrote {files[0]}, and beside it {", ".join(file.name for file in files[1:])}')
    return 1 if report.excluded else 0

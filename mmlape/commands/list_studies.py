"""Print the studies of this package: what each compares, and the data, processes and time that it needs.
mmlape multi-seed mmlape::studies/NAME.yml --processes N trains one; with --dry-run it prints arms and figures."""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        'pattern', metavar='PATTERN', nargs='?', default='*', help="such as 'lape-*' or 'mpvg-table1'; default: all"
    )


def run(args: argparse.Namespace) -> int:
    """Print the table; 1 if no study matches."""
    from fnmatch import fnmatchcase

    from mmlape.console.tables import print_table, text_table
    from mmlape.lab.experiments.averages import DASH
    from mmlape.lab.studies import packaged_studies

    studies = [study for study in packaged_studies() if fnmatchcase(study.name, args.pattern)]
    if not studies:
        print(f'no study matches {args.pattern!r}')
        return 1
    rows = []
    for study in studies:
        processes = ' or '.join(map(str, study.processes)) or DASH
        runs = f'{len(study.arms)} x {len(study.seeds) or 1}'
        rows.append((study.name, study.title, study.source, runs, study.data, processes, study.time or DASH))
    heads = ('study', 'what it compares', 'figures of', 'arms x seeds', 'data', 'processes a run', 'time')
    print_table(text_table(heads, rows, 7), whole=True)
    return 0

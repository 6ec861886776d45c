"""`mmlape status`: how the runs below a work dir are, and how long they will take."""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.description = (
        'Show every run below a work dir: state, iteration, time left, last metric, host, and why it is not running. '
        'Reads the disk only, so it works from any machine that sees it.'
    )
    parser.add_argument('work_dir', nargs='?', default='work_dirs', metavar='WORK_DIR', help='default: %(default)s')
    parser.add_argument(
        '--watch', nargs='?', const=5.0, type=float, metavar='SECONDS', help='look again and again, every 5 seconds'
    )
    parser.add_argument('--json', action='store_true', help='for programs')


def run(args: argparse.Namespace) -> int:
    """Shows the table once, or until Ctrl-C."""
    from mmlape.experiments.status import as_json, console, rows, table, watch

    if args.json:
        print(as_json(rows(args.work_dir)))
    elif args.watch is not None:
        try:
            watch(args.work_dir, max(0.1, args.watch))
        except KeyboardInterrupt:
            return 0
    else:
        console().print(table(rows(args.work_dir)))
    return 0

"""Show every run below a folder, of `mmlape train` or `mmlape multi-seed`: state, progress, images per second, time
left, last metric, host, and why it is not running; above, what is stored of frozen ViTs. Reads only the disk, so it
works on any machine that sees the folder."""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add('work_dir', nargs='?', default='work_dirs', metavar='WORK_DIR', help='default: %(default)s')
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        '--watch',
        nargs='?',
        const=5.0,
        type=float,
        metavar='SECONDS',
        help='refresh every so many seconds; default: 5, if it is given',
    )
    how.add_argument('--json', action='store_true', help='for programs')


def run(args: argparse.Namespace) -> int:
    """Show the table once, or until Ctrl-C."""
    from mmlape.lab.experiments.status import as_json, print_rows, rows, watch
    from mmlape.lab.experiments.until import read_until
    from mmlape.lab.training.frozen import describe_stored

    if args.json:
        print(as_json(rows(args.work_dir)))
    elif args.watch is not None:
        try:
            watch(args.work_dir, max(0.1, args.watch))
        except KeyboardInterrupt:
            return 0
    else:
        if stored := describe_stored():
            print(stored)
        print_rows(rows(args.work_dir))
        for verdict in until.verdicts() if (until := read_until(args.work_dir)) else ():
            print(verdict)
    return 0

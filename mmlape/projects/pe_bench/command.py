"""Compare a position encoding of your own with ours by the protocol of a registered study (studies/mini-sizes.yml): a
small Segmenter, five seeds, canvases of 1, 1.5 and 2 times the trained side. FILE.py registers the encoding, as
docs/reference/extending.md describes it; what it lacks is one line before any training. Writes the report of `mmlape
size-sweep` with intervals and differences. About an hour of two cores. Killed, the same command continues."""

import argparse

from mmlape.lab.engine.options import add_more


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add('file', metavar='FILE.py', help='registers a position encoding in mmlape.kinds')
    add(
        '--quick',
        action='store_true',
        help='a first look in some ten minutes: short runs, three seeds, two of our arms',
    )
    add('--work-dir', metavar='DIR', help='of runs and report; default: work_dirs/pe-bench-NAME, -quick with --quick')
    add('--dry-run', action='store_true', help='check the file and print the plan')
    more = add_more(parser)
    more.add_argument('--name', metavar='NAME', help='of the encoding, if FILE.py registers several')


def run(args: argparse.Namespace) -> int:
    """Check the file, train, evaluate, and write the report; return 1 if a run does not count."""
    import signal
    import sys
    from pathlib import Path

    from mmlape.projects.pe_bench.bench import FULL, QUICK, run_bench
    from mmlape.projects.pe_bench.contract import check_kind, import_kind
    from mmlape.quiet import say

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    kind = import_kind(args.file, args.name)
    check_kind(args.file, kind)
    say(f'{args.file}: {kind} does what is asked of an encoding')
    work_dir = args.work_dir or f'work_dirs/pe-bench-{kind}{"-quick" if args.quick else ""}'
    if args.quick:
        say('a first look: encodings that are learned slowly look worse than they are, so it is no result')
    return run_bench(args.file, kind, Path(work_dir), QUICK if args.quick else FULL, args.dry_run)

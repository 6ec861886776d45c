"""Fine-tune a pretrained model on the sets of VTAB-1k, the arms of a study: several rates with several seeds, the rate
of the best mean validation accuracy, its seeds on the test split; then means of the sets, of their groups and of all,
with the paper's figures beside. Killed at any moment, the same command continues."""

import argparse

from mmlape.lab.config.command_options import add_cfg_options, seed
from mmlape.lab.experiments.options import add_running, make_launcher

SEEDS = (121, 122, 123)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add('configs', nargs='+', metavar='STUDY', help='studies/vtab.yml; or configs of sets')
    add('checkpoint', metavar='CHECKPOINT', help='weights to start from: a complete model, or a backbone')
    add('--base', metavar='NAME', help="which of the study's models: b32, b32-dpn, b16 or b16-dpn; default: b32")
    add('--sets', nargs='+', default=(), metavar='SET', help='only these; default: all')
    add('--data', required=True, metavar='DIR', help='holds a folder for each set, with its published lists')
    add('--seeds', type=seed, nargs='+', default=SEEDS, metavar='S', help='default: 121 122 123')
    add('--work-dir', default='work_dirs/vtab', metavar='DIR', help='default: %(default)s')
    add_cfg_options(parser)
    more = add_running(parser)
    more.add_argument(
        '--rates', type=float, nargs='+', metavar='LR', help='learning rates to choose among; default: 3e-4 1e-3 3e-3'
    )
    more.add_argument(
        '--images',
        type=int,
        choices=(800, 1000),
        default=800,
        help="1000 trains the chosen rate once more, with the images of validation, as VTAB's authors; default: 800",
    )
    more.add_argument(
        '--skip-missing', action='store_true', help='leave out sets whose folder is missing; the means say so'
    )
    more.add_argument(
        '--prune', action='store_true', help='delete the checkpoints of the other rates once a set is tested'
    )


def run(args: argparse.Namespace) -> int:
    """Train, test and print the table; return 1 if a set has no result."""
    import signal
    import sys
    from pathlib import Path

    from mmlape.console.tables import print_table
    from mmlape.lab.experiments.report import write_report
    from mmlape.projects.vtab.protocol import RATES, Options, build_report, run_sets
    from mmlape.projects.vtab.sets import check_sets, read_sets

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sets = read_sets(
        args.configs, args.checkpoint, args.data, args.cfg_options or (), args.skip_missing, args.base, args.sets
    )
    check_sets(sets.sets, args.images)
    rates = args.rates or RATES
    options = Options(rates, args.seeds, args.images, Path(args.work_dir), args.processes, args.extra, args.prune)
    try:
        results = run_sets(sets.sets, options, make_launcher(args), args.dry_run, not args.no_wait)
    except KeyboardInterrupt:
        print('interrupted; the same command continues from here', file=sys.stderr)
        return 130
    if not results:
        return 0
    report = build_report(results, options, sets)
    print_table(report.first[0].content, 'VTAB')
    for note in report.notes:
        print(note)
    files = write_report(report, options.work_dir / 'results')
    print(f'wrote {files[0]}, and beside it {", ".join(file.name for file in files[1:])}')
    return 0 if all(result.test for result in results) else 1

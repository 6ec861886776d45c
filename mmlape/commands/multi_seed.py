"""`mmlape multi-seed`: trains a configuration over seeds, and averages last and best results."""

import argparse

SEEDS = (121, 122, 123, 124, 125)  # the paper's


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.description = (
        'Train a configuration with several seeds, one process and one work dir each: finished ones are skipped, '
        'broken ones resumed. Then print and write mean, sample standard deviation and n of the last and of the best '
        'evaluation.'
    )
    parser.epilog = 'Options after -- go to `mmlape train`, such as: -- --amp bf16'
    add = parser.add_argument
    add('config', metavar='CONFIG', help='a configuration file, or mmlape::folder/name')
    add('--seeds', type=int, nargs='+', metavar='S', help=f"default: {' '.join(map(str, SEEDS))}, the paper's")
    add('--gpus', type=int, default=1, metavar='N', help='processes of one run; CPU processes where there is no GPU')
    add('--work-dir', default='work_dirs', metavar='DIR', help='runs go to DIR/<name of the configuration>/seed_<s>')
    add('--cfg-options', nargs='+', action='extend', metavar='KEY=VALUE', help='changes of the configuration')
    add(
        '--aggregate-only', action='store_true', help='train nothing; without --seeds, average all runs that are there'
    )
    _split_at_dashes(parser)


def _split_at_dashes(parser: argparse.ArgumentParser) -> None:
    """Keeps what stands after ``--`` for the trainings; argparse has no such option that may also be left out."""
    parse = parser.parse_known_args

    def parse_known_args(args, namespace=None):
        end = args.index('--') if '--' in args else len(args)
        namespace, unknown = parse(args[:end], namespace)
        namespace.extra = args[end + 1 :]
        return namespace, unknown

    parser.parse_known_args = parse_known_args


def run(args: argparse.Namespace) -> int:
    """Trains, averages and reports; 1 if a seed is not finished."""
    import signal
    import sys

    from rich.console import Console

    from mmlape.experiments.aggregate import read_seeds, summary_table
    from mmlape.experiments.seeds import Experiment, train_seeds, write_summary

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    experiment = Experiment(
        args.config, args.seeds or SEEDS, args.work_dir, args.gpus, args.cfg_options or (), args.extra
    )
    if args.aggregate_only:
        runs = read_seeds(experiment.folder, args.seeds)
    else:
        try:
            runs = train_seeds(experiment, say=lambda text: print(text, flush=True))
        except KeyboardInterrupt:
            print('interrupted; the same command goes on from here', file=sys.stderr)
            return 130
    if not any(one.finished for one in runs):
        print(f'no finished run in {experiment.folder}: nothing to average', file=sys.stderr)
        return 1
    summary = write_summary(experiment.folder, runs, args.config)
    Console().print(summary_table(summary, f'{experiment.folder.name}, seeds {summary["seeds"]}'))
    for seed, state in summary['unfinished'].items():
        print(f'not counted: seed {seed}, {state}')
    others = [one.seed for one in read_seeds(experiment.folder) if one.finished and one.seed not in summary['seeds']]
    if others:
        print(f'finished too, but not asked for and not counted: seeds {", ".join(map(str, others))}')
    print(f'wrote {experiment.folder / "summary.json"}')
    return 1 if summary['unfinished'] else 0

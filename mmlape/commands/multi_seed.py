"""`mmlape multi-seed`: train arms over seeds, here or as Slurm jobs, and average last and best results."""

import argparse

from mmlape.engine.options import seed

SEEDS = (121, 122, 123, 124, 125)
"""The paper's."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.description = (
        'Train one config or several, the arms, with several seeds. Each run has a folder of its own, whose content '
        'decides: finished runs are skipped, broken ones resumed, running ones waited for. Killed at any moment, the '
        'same command continues. Then print and write mean, deviation, n and interval of the last and of the best '
        'evaluation, arm by arm.'
    )
    add = parser.add_argument
    add('config', nargs='*', metavar='CONFIG', help='an arm named after its file: a path, or mmlape::folder/name')
    add(
        '--arm',
        nargs='+',
        action='append',
        default=[],
        metavar=('NAME', 'CONFIG'),
        help='NAME CONFIG [KEY=VALUE ...]: an arm with its own name and changes; may be repeated',
    )
    add('--fractions', nargs='+', metavar='F', help='each arm on these fractions of its training images: 1/16 0.5 1')
    add('--seeds', type=seed, nargs='+', metavar='S', help=f"default: {' '.join(map(str, SEEDS))}, the paper's")
    add('--work-dir', default='work_dirs', metavar='DIR', help='runs go to DIR/<arm>/seed_<s>; default: %(default)s')
    add('--cfg-options', nargs='+', action='extend', default=[], metavar='KEY=VALUE', help='changes of every arm')
    add_running(parser)
    add('--aggregate-only', action='store_true', help='only average; without --seeds, all runs in the folders')


def add_running(parser: argparse.ArgumentParser) -> None:
    """Add the options of every command that trains several runs: how they are started, and those of training."""
    parser.epilog = 'Options after -- go to `mmlape train`, such as: -- --amp bf16'
    add = parser.add_argument
    add('--gpus', type=int, default=1, metavar='N', help='processes of one run; on the CPU if there is no GPU')
    add('--launcher', choices=('pytorch', 'slurm'), default='pytorch', help='this machine (default), or Slurm jobs')
    add('--parallel', type=int, metavar='N', help='maximum of runs at a time; default: as many as fit')
    add('--dry-run', action='store_true', help='print the plan, and do nothing')
    slurm = parser.add_argument_group('with --launcher slurm')
    slurm.add_argument('--gpus-per-node', type=int, default=4, metavar='N', help='0 for CPU processes; default: 4')
    slurm.add_argument(
        '--slurm-args', nargs='+', action='extend', default=[], metavar='KEY=VALUE', help='partition=..., time=...'
    )
    slurm.add_argument('--no-wait', action='store_true', help='submit and return')
    _split_at_dashes(parser)


def _split_at_dashes(parser: argparse.ArgumentParser) -> None:
    """Keep what follows ``--`` for training; argparse has no such argument that is also optional."""
    parse = parser.parse_known_args

    def parse_known_args(args, namespace=None):
        end = args.index('--') if '--' in args else len(args)
        namespace, unknown = parse(args[:end], namespace)
        namespace.extra = args[end + 1 :]
        return namespace, unknown

    parser.parse_known_args = parse_known_args


def run(args: argparse.Namespace) -> int:
    """Train, average and report; return 1 if a run is not finished."""
    import signal
    import sys

    from mmlape.errors import ConfigError
    from mmlape.experiments.arm import Arm, on_fractions
    from mmlape.experiments.multi_seed import average_arms, make_launcher, run_study
    from mmlape.experiments.study import Study

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    arms = [Arm.of(config, args.cfg_options) for config in args.config]
    arms += [Arm.parse(values, args.cfg_options) for values in args.arm]
    if not arms:
        raise ConfigError('nothing to train: name a CONFIG, or --arm NAME CONFIG')
    arms = on_fractions(arms, args.fractions) if args.fractions else arms
    if args.aggregate_only:
        return average_arms(arms, args.work_dir, args.seeds, '--allow-different-software' in args.extra)
    study = Study(arms, args.seeds or SEEDS, args.work_dir, args.gpus, args.extra)
    wait = not args.no_wait
    launcher = make_launcher(args.launcher, args.gpus, args.parallel, args.gpus_per_node, args.slurm_args, wait)
    try:
        return run_study(study, launcher, args.dry_run, wait)
    except KeyboardInterrupt:
        print('interrupted; the same command continues from here', file=sys.stderr)
        return 130

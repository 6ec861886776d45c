"""Options of the commands that train several runs, and the launcher that they describe."""

import argparse
from typing import TYPE_CHECKING

from mmlape.errors import ConfigError
from mmlape.lab.config.command_options import Arguments, add_more, positive

if TYPE_CHECKING:
    from mmlape.lab.experiments.launchers import Launcher

GPUS_PER_NODE = 4


def add_running(parser: argparse.ArgumentParser) -> Arguments:
    """Add the options of every command that trains several runs: how they are started, and those of training.

    Return the group of rare options.
    """
    parser.epilog = 'Options after -- go to `mmlape train`, such as: -- --amp bf16'
    parser.set_defaults(extra=[])
    add = parser.add_argument
    add(
        '--processes',
        type=positive,
        default=1,
        metavar='N',
        help='of one run, each on a GPU of its own if there are any; default: 1',
    )
    add(
        '--per-gpu',
        type=positive,
        metavar='N',
        help='N runs at a time share a GPU, or without GPUs the cores, each a process with the results it has alone; '
        'default: one a GPU',
    )
    add('--slurm', action='store_true', help='submit Slurm jobs; default: run on this machine')
    add('--dry-run', action='store_true', help='print the plan, and do nothing')
    slurm = parser.add_argument_group('with --slurm')
    slurm.add_argument('--gpus-per-node', type=int, metavar='N', help=f'0 for CPU processes; default: {GPUS_PER_NODE}')
    slurm.add_argument(
        '--slurm-args', nargs='+', action='extend', default=[], metavar='KEY=VALUE', help='partition=..., time=...'
    )
    slurm.add_argument('--no-wait', action='store_true', help='submit and return')
    more = add_more(parser)
    more.add_argument(
        '--parallel', type=positive, metavar='N', help='maximum of runs at a time; default: as many as fit'
    )
    return more


def make_launcher(args: argparse.Namespace) -> 'Launcher':
    """Build the launcher that the options of `add_running` describe, or raise ConfigError."""
    from mmlape.lab.experiments.launchers import LocalLauncher
    from mmlape.lab.experiments.slurm import SlurmLauncher

    gpus = args.gpus_per_node
    if args.slurm and args.per_gpu:
        raise ConfigError(
            f'--per-gpu {args.per_gpu}: Slurm gives each job its own GPUs. Without --slurm, inside one job '
            '(`srun --gpus=1 mmlape multi-seed ...`), runs share those of the job'
        )
    if args.slurm:
        per_node = GPUS_PER_NODE if gpus is None else gpus
        return SlurmLauncher(args.processes, per_node, args.slurm_args, args.parallel, submits=not args.dry_run)
    given = {'--slurm-args': args.slurm_args, '--no-wait': args.no_wait, '--gpus-per-node': gpus is not None}
    for option in (name for name, value in given.items() if value):
        raise ConfigError(f'{option}: only with --slurm')
    return LocalLauncher(args.processes, args.parallel, per_gpu=args.per_gpu)

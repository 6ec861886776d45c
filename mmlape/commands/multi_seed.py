"""`mmlape multi-seed`: trains arms over seeds, here or as Slurm jobs, and averages last and best results."""

import argparse

from mmlape.commands.train import seed as a_seed

SEEDS = (121, 122, 123, 124, 125)  # the paper's


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.description = (
        'Train one configuration or several, the arms, with several seeds. Each run has a folder of its own, and '
        'what is there decides: finished runs are skipped, broken ones resumed, running ones waited for. Killed at '
        'any moment, the same command goes on. Then print and write mean, deviation, n and interval of the last and '
        'of the best evaluation, arm by arm.'
    )
    parser.epilog = 'Options after -- go to `mmlape train`, such as: -- --amp bf16'
    add = parser.add_argument
    add('config', nargs='*', metavar='CONFIG', help='an arm that is named as its file: a path, or mmlape::folder/name')
    add(
        '--arm',
        nargs='+',
        action='append',
        default=[],
        metavar=('NAME', 'CONFIG'),
        help='NAME CONFIG [KEY=VALUE ...]: an arm with a name and changes of its own; may be repeated',
    )
    add('--seeds', type=a_seed, nargs='+', metavar='S', help=f"default: {' '.join(map(str, SEEDS))}, the paper's")
    add('--work-dir', default='work_dirs', metavar='DIR', help='runs go to DIR/<arm>/seed_<s>; default: %(default)s')
    add('--cfg-options', nargs='+', action='extend', default=[], metavar='KEY=VALUE', help='changes of every arm')
    add('--gpus', type=int, default=1, metavar='N', help='processes of one run; CPU processes where there is no GPU')
    add('--launcher', choices=('pytorch', 'slurm'), default='pytorch', help='this machine (default), or Slurm jobs')
    add('--parallel', type=int, metavar='N', help='the most runs at a time; default: as many as fit')
    add('--dry-run', action='store_true', help='print what would be done, and do nothing')
    add(
        '--aggregate-only',
        action='store_true',
        help='train nothing; without --seeds, average all that are there',
    )
    slurm = parser.add_argument_group('with --launcher slurm')
    slurm.add_argument('--gpus-per-node', type=int, default=4, metavar='N', help='0 for CPU processes; default: 4')
    slurm.add_argument(
        '--slurm-args', nargs='+', action='extend', default=[], metavar='KEY=VALUE', help='partition=..., time=...'
    )
    slurm.add_argument('--no-wait', action='store_true', help='submit and come back')
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
    """Trains, averages and reports; 1 if a run is not finished."""
    import functools
    import signal
    import sys
    from pathlib import Path

    from mmlape.engine.optim import check_precision
    from mmlape.experiments.scheduler import Scheduler
    from mmlape.experiments.study import Study

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    arms, work_dir = _arms(args), Path(args.work_dir)
    if args.aggregate_only:
        return _average(arms, work_dir, args.seeds, args.extra)
    study = Study(arms, args.seeds or SEEDS, work_dir, args.gpus, args.extra)
    launcher = _launcher(args)
    if args.launcher == 'pytorch':
        check_precision(study.options.amp)
    plan = study.plan()
    study.check_checkpoints([arm for arm in study.arms if _has_work(arm, plan)])
    if args.dry_run:
        return _show(plan, launcher)
    try:
        print(launcher.describe(), flush=True)
        Scheduler(plan, launcher, functools.partial(print, flush=True)).run(wait=not args.no_wait)
    except KeyboardInterrupt:
        print('interrupted; the same command goes on from here', file=sys.stderr)
        return 130
    return 0 if args.no_wait else _average(arms, work_dir, study.seeds, args.extra)


def _arms(args: argparse.Namespace) -> list:
    from mmlape.errors import ConfigError
    from mmlape.experiments.study import Arm

    arms = [Arm.of(config, args.cfg_options) for config in args.config]
    for words in args.arm:
        if len(words) < 2 or any('=' not in word for word in words[2:]):
            raise ConfigError(f'--arm {" ".join(words)}: takes NAME CONFIG [KEY=VALUE ...]')
        arms.append(Arm(words[0], words[1], (*args.cfg_options, *words[2:])))
    if not arms:
        raise ConfigError('nothing to train: name a CONFIG, or --arm NAME CONFIG')
    return arms


def _launcher(args: argparse.Namespace):
    from mmlape.errors import ConfigError

    if args.parallel is not None and args.parallel < 1:
        raise ConfigError(f'--parallel {args.parallel}: at least one')
    if args.launcher == 'slurm':
        from mmlape.experiments.launchers.slurm import SlurmLauncher

        return SlurmLauncher(args.gpus, args.gpus_per_node, args.slurm_args, args.parallel)
    if args.no_wait or args.slurm_args:
        raise ConfigError(f'{"--no-wait" if args.no_wait else "--slurm-args"}: only with --launcher slurm')
    from mmlape.experiments.launchers.local import LocalLauncher

    return LocalLauncher(args.gpus, args.parallel)


def _has_work(arm, plan) -> bool:
    return any(planned.arm == arm and planned.action in ('start', 'resume') for planned in plan)


def _show(plan, launcher) -> int:
    """Prints what would be done; 1 if something would be refused."""
    from rich.markup import escape
    from rich.table import Table

    from mmlape.experiments.status import console

    table = Table('arm', 'seed', 'state', 'to be done', 'why', title=launcher.describe())
    for planned in plan:
        job = launcher.adopt(planned) if planned.action in ('start', 'resume') else None
        action, why = ('watch', job.told) if job else (planned.action, planned.why)
        table.add_row(planned.arm.name, str(planned.run.seed), planned.run.state, action, escape(why))
    console().print(table)
    return 1 if any(planned.action == 'refuse' for planned in plan) else 0


def _average(arms, work_dir, seeds, extra) -> int:
    """Prints every arm's averages, and writes them; 1 if a run is missing in them."""
    allow_software = '--allow-different-software' in extra
    complete = [_average_arm(arm, work_dir / arm.name, seeds, allow_software) for arm in arms]
    if len(arms) > 1:
        print(f'compare the arms: mmlape report {work_dir}')
    return 0 if all(complete) else 1


def _average_arm(arm, folder, seeds, allow_software) -> bool:
    import sys

    from mmlape.experiments.averages import SUMMARY, summary_table, write_summary
    from mmlape.experiments.status import console
    from mmlape.runs.run import read_seeds

    runs = read_seeds(folder, seeds)
    if not any(one.finished for one in runs):
        print(f'no finished run in {folder}: nothing to average', file=sys.stderr)
        return False
    summary = write_summary(folder, runs, arm.config, allow_software)
    console().print(summary_table(summary, f'{arm.name}, seeds {", ".join(map(str, summary["seeds"]))}'))
    for seed, state in summary['unfinished'].items():
        print(f'not counted: seed {seed}, {state}')
    others = [one.seed for one in read_seeds(folder) if one.finished and one.seed not in summary['seeds']]
    if others:
        print(f'finished too, but not asked for and not counted: seeds {", ".join(map(str, others))}')
    print(f'wrote {folder / SUMMARY}')
    return not summary['unfinished']

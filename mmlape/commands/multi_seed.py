"""Train arms with several seeds: the arms of a study file, or configs. Each run has a folder of its own, whose content
decides: finished runs are skipped, broken ones resumed, running ones waited for. Killed at any moment, the same
command continues. Then print and write mean, deviation, n and interval of the last and of the best evaluation, arm by
arm."""

import argparse

from mmlape.lab.config.command_options import positive, seed
from mmlape.lab.experiments.options import add_running, make_launcher

SEEDS = (121, 122, 123, 124, 125)
"""LaPE's."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        'config',
        nargs='*',
        metavar='CONFIG',
        help='a study (studies/NAME.yml) or one of its arms (studies/NAME.yml:ARM), or a config, an arm named after '
        'its file: a path, or mmlape::folder/name',
    )
    add('--arms', nargs='+', metavar='ARM', help="only these arms; 'rms*' are all whose names start so")
    add('--seeds', type=seed, nargs='+', metavar='S', help=f"default: the study's; else {' '.join(map(str, SEEDS))}")
    add(
        '--work-dir',
        metavar='DIR',
        help='runs go to DIR/<arm>/seed_<s>; default: work_dirs, of a study work_dirs/<its name>',
    )
    add(
        '--until',
        type=float,
        metavar='D',
        help='start seeds, the same in each arm, until every arm is better or worse than the first one, or certainly '
        'less than D points apart; status 0: one is better, 1: none is, 2: undecided at the last seed',
    )
    add('--cfg-options', nargs='+', action='extend', default=[], metavar='KEY=VALUE', help='changes of every arm')
    more = add_running(parser)
    more.add_argument(
        '--arm',
        nargs='+',
        action='append',
        default=[],
        metavar=('NAME', 'CONFIG'),
        help='NAME CONFIG [KEY=VALUE ...]: an arm with its own name and changes; may be repeated',
    )
    more.add_argument(
        '--fractions', nargs='+', metavar='F', help='each arm on these fractions of its training images: 1/16 0.5 1'
    )
    more.add_argument(
        '--max-seeds', type=positive, default=20, metavar='N', help='of an arm, with --until; default: %(default)s'
    )
    more.add_argument(
        '--alpha',
        type=float,
        default=0.05,
        metavar='P',
        help='probability of a wrong decision, with --until; default: %(default)s',
    )


def run(args: argparse.Namespace) -> int:
    """Train, average and report; return 1 if a run is not finished."""
    import signal
    import sys
    from pathlib import Path

    from mmlape.errors import ConfigError
    from mmlape.lab.experiments.multi_seed import run_study, show_arms
    from mmlape.lab.experiments.planning import Study, check_names_and_seeds, choose, on_fractions, read_arms

    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    arms, seeds, work_dir = read_arms(args.config, args.cfg_options, args.arm)
    if not arms:
        raise ConfigError('nothing to train: name a STUDY or CONFIG, or --arm NAME CONFIG')
    arms = choose(arms, args.arms) if args.arms else arms
    arms = on_fractions(arms, args.fractions) if args.fractions else arms
    work_dir, until = args.work_dir or work_dir, None
    if args.until is None:
        seeds = args.seeds or seeds or SEEDS
    else:
        from mmlape.lab.experiments.until import FIRST, UntilStudy

        if args.no_wait:
            raise ConfigError('--until: what is started next follows from what has finished, so leave --no-wait out')
        seeds = tuple(args.seeds or range(FIRST, FIRST + args.max_seeds))[: args.max_seeds]
        software, (baseline, *others) = '--allow-different-software' in args.extra, [arm.name for arm in arms]
        until = UntilStudy(baseline, others, list(seeds), args.until, args.alpha, Path(work_dir), software)
        until.fix(write=False)
    check_names_and_seeds(arms, seeds)
    launcher = make_launcher(args)
    if args.dry_run:
        show_arms(arms, work_dir, seeds, args.extra, args.processes)
    study = Study(arms, seeds, work_dir, args.processes, args.extra)
    try:
        return run_study(study, launcher, args.dry_run, not args.no_wait, until)
    except KeyboardInterrupt:
        print('interrupted; the same command continues from here', file=sys.stderr)
        return 130

"""How many seeds each of two arms needs to find a true difference, in points (AP times 100, percent), by a two-sided
t-test at the 5 % level. The spread comes from the finished runs below a work dir, or from --std."""

import argparse

from mmlape.lab.config.command_options import add_more


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add('work_dir', nargs='?', metavar='WORK_DIR', help='holds <arm>/seed_<s>, or is one arm')
    add('--difference', type=float, nargs='+', required=True, metavar='D', help='in points, such as 0.4 0.8 1.4')
    add('--std', type=float, metavar='S', help='standard deviation over seeds in points, instead of WORK_DIR')
    add('--arms', nargs='+', metavar='ARM', help='whose spread is averaged, or patterns; default: all with the metric')
    add('--metric', metavar='KEY', help="default: the task's, such as mIoU, coco/bbox_mAP, accuracy/top1")
    add('--paired', action='store_true', help='for the test on differences over common seeds: two arms, or their std')
    more = add_more(parser)
    more.add_argument(
        '--power', type=float, default=0.8, metavar='P', help='probability of finding it; default: %(default)s'
    )
    more.add_argument('--allow-different-software', action='store_true', help='as in `mmlape report`')


def run(args: argparse.Namespace) -> int:
    from mmlape.console.tables import print_table
    from mmlape.errors import ConfigError
    from mmlape.lab.experiments.sample_size import pilot_spread, sample_size_table
    from mmlape.lab.experiments.statistics import Spread

    if (args.std is None) == (args.work_dir is None):
        raise ConfigError('the spread comes from WORK_DIR or from --std: give one of them')
    for name in ('arms', 'metric', 'allow_different_software'):
        if args.std is not None and getattr(args, name):
            raise ConfigError(f'--{name.replace("_", "-")} is an option of WORK_DIR, which is not given')
    if args.std is None:
        spread, source = pilot_spread(
            args.work_dir, args.arms, args.metric, args.paired, args.allow_different_software
        )
    else:
        spread, source = Spread(args.std), 'as given'
    table = sample_size_table(spread, args.difference, args.power, args.paired)
    ends = spread.interval()
    interval = f'; its 95 % interval is {ends[0]:.2f} to {ends[1]:.2f}' if ends else ''
    print(
        f'standard deviation{" of the differences" if args.paired else ""}: {spread.std:.2f} '
        f'points, {source}{interval}'
    )
    title = f'seeds in each arm for a power of {args.power:g}, {"paired" if args.paired else "unpaired"} test'
    print_table(table, title)
    if ends:
        print('The outer columns are for the ends of the interval: a small pilot estimates its spread poorly.')
    return 0

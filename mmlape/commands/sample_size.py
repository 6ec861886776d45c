"""`mmlape sample-size`: how many seeds a difference needs, from the spread of a pilot."""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.description = (
        'How many seeds each of two arms needs to find a true difference, in points (AP times 100, percent), by a '
        'two-sided t-test at the 5 % level. The spread comes from the finished runs below a work dir, or from --std.'
    )
    add = parser.add_argument
    add('work_dir', nargs='?', metavar='WORK_DIR', help='holds <arm>/seed_<s>, or is one arm')
    add('--std', type=float, metavar='S', help='standard deviation over seeds in points, instead of WORK_DIR')
    add('--pilot-seeds', type=int, metavar='N', help='the seeds that --std is of: shows how uncertain it is')
    add('--arms', nargs='+', metavar='ARM', help='whose spread is averaged; by default all that have the metric')
    add('--metric', metavar='KEY', help="by default the task's: mIoU, coco/bbox_mAP, accuracy/top1")
    add('--difference', type=float, nargs='+', required=True, metavar='D', help='in points, such as 0.4 0.8 1.4')
    add('--power', type=float, default=0.8, metavar='P', help='chance to find it; default: %(default)s')
    add('--allow-different-software', action='store_true', help='as in `mmlape report`')
    add('--paired', action='store_true', help='for the test on differences over common seeds: two arms, or their std')


def run(args: argparse.Namespace) -> int:
    """Prints a table of seeds."""
    from rich.console import Console
    from rich.table import Table

    from mmlape.experiments.power import MOST, seeds_needed

    spread, where = _spread(args)
    ends = spread.interval()
    known = f'; its 95 % interval is {ends[0]:.2f} to {ends[1]:.2f}' if ends else ''
    print(f'standard deviation{" of the differences" if args.paired else ""}: {spread.std:.2f} points, {where}{known}')
    table = Table(
        title=f'seeds in each arm for a power of {args.power:g}, {"paired" if args.paired else "unpaired"} test'
    )
    heads = ['difference', f'std {spread.std:.2f}', *(f'std {end:.2f}' for end in ends or ())]
    for head in heads:
        table.add_column(head, justify='right')
    for difference in args.difference:
        needed = [seeds_needed(difference, std, args.power, args.paired) for std in (spread.std, *(ends or ()))]
        table.add_row(f'{difference:g}', *(str(number or f'> {MOST}') for number in needed))
    Console().print(table)
    if ends:
        print('The outer columns are for the ends of the interval: a small pilot knows its own spread badly.')
    return 0


def _spread(args: argparse.Namespace) -> tuple:
    """The standard deviation to reckon with, and where it comes from."""
    from mmlape.errors import ConfigError
    from mmlape.experiments.power import Spread

    if (args.std is None) == (args.work_dir is None):
        raise ConfigError('the spread comes from WORK_DIR or from --std: give one of them')
    if args.std is None:
        return _of_runs(args)
    if args.pilot_seeds is not None and args.pilot_seeds < 2:
        raise ConfigError(f'--pilot-seeds {args.pilot_seeds}: a standard deviation is of two seeds or more')
    return Spread(args.std, args.pilot_seeds and args.pilot_seeds - 1), 'as given'


def _of_runs(args: argparse.Namespace) -> tuple:
    """The spread of the arms below a work dir."""
    from mmlape.errors import ConfigError, DataError
    from mmlape.evaluation.names import label
    from mmlape.experiments.power import of_differences, pooled
    from mmlape.experiments.report.arms import Arm, average
    from mmlape.runs.run import read_arms

    arms = read_arms(args.work_dir, args.arms)
    results = [average(Arm(name, runs), args.allow_different_software) for name, runs in arms.items()]
    metric = args.metric or _only_metric(results)
    values = {result.name: result.values('last', metric) for result in results}
    values = {name: found for name, found in values.items() if found}
    if not values:
        known = sorted({name for result in results for name in result.summary['last']['metrics']})
        raise ConfigError(f'--metric {metric}: no finished run has it; there are: {", ".join(known) or "none"}')
    if args.paired and len(values) != 2:
        raise ConfigError(f'--paired wants two arms, not {len(values)}: choose them with --arms; {", ".join(values)}')
    spread = (
        of_differences(*values.values()) if args.paired else pooled([list(one.values()) for one in values.values()])
    )
    if spread is None:
        raise DataError(f'{args.work_dir}: two finished seeds are needed to know a spread')
    return spread, f'{label(metric)} of the last evaluation of {", ".join(values)}'


def _only_metric(results) -> str:
    """The first metric of the arms, if that is one and the same."""
    from mmlape.errors import ConfigError

    found = list(dict.fromkeys(result.metrics[0] for result in results if result.metrics))
    if len(found) != 1:
        raise ConfigError(f'--metric: choose one of {", ".join(found)}' if found else '--metric: no run has finished')
    return found[0]

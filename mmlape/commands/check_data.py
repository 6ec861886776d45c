"""`mmlape check-data`: looks at every file and annotation of a config's data, before hours of training."""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.description = (
        "Look at every picture, label map and annotation of a config's data: that they are there and can be read, "
        'sizes, categories and label ids against the classes, boxes outside images, images without objects, classes '
        'that never occur, pictures in both training and validation. Ends with status 1 if something would end or '
        'spoil a training. A training looks at a sample of this when it starts.'
    )
    add = parser.add_argument
    add('config', metavar='CONFIG', help='a configuration file, or mmlape::folder/name')
    add('--splits', nargs='+', choices=('train', 'val', 'test'), default=('train', 'val', 'test'), help='default: all')
    add('--sample', type=_positive, metavar='N', help='open N pictures of each data set instead of all')
    add('--workers', type=_positive, metavar='N', help='threads that decode; default: one a core')
    add('--json', metavar='FILE', help='everything found, with the count of every class, as JSON')
    add('--browse', metavar='DIR', help='write DIR/index.html: pictures with their annotations, as training gets them')
    add('--num', type=_positive, default=24, metavar='N', help='pictures to browse (%(default)s)')
    add('--cfg-options', nargs='+', action='extend', metavar='KEY=VALUE', help='changes of the configuration')


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f'{text} is not a positive number')
    return value


def run(args: argparse.Namespace) -> int:
    """Prints what was found; 1 after errors, 130 after an interrupt."""
    from mmlape.datasets.checks.full import full_check
    from mmlape.datasets.checks.report import RichProgress, print_report, write_report
    from mmlape.engine.config import config_name, load_config
    from mmlape.engine.optim import quiet_logger

    cfg = load_config(args.config, args.cfg_options)
    with quiet_logger(), RichProgress() as progress:
        report = full_check(cfg, args.splits, progress, args.sample, args.workers)
    print_report(report)
    if args.json:
        write_report(report, config_name(cfg), args.json)
        print(f'wrote {args.json}')
    if args.browse and not report.interrupted:
        from mmlape.analysis.dataset_page import write_page

        print(f'wrote {write_page(cfg, args.browse, args.splits[0], args.num, report)}')
    if report.interrupted:
        return 130
    return 1 if report.issues.errors else 0

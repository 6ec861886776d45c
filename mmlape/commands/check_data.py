"""Check every image, label map and annotation of a config's data: files that are missing or cannot be read, sizes,
categories and label ids against the classes, boxes outside images, images without objects, classes that never occur,
images in both training and validation. The status is 1 if something would stop or spoil training. Training checks a
sample of this when it starts."""

import argparse
import sys

from mmlape.lab.config.command_options import add_config, positive


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add_config(parser, or_run=True)
    add('--splits', nargs='+', choices=('train', 'val', 'test'), default=('train', 'val', 'test'), help='default: all')
    add('--sample', type=positive, metavar='N', help='open N images of each dataset instead of all')
    add('--workers', type=positive, metavar='N', help='threads that decode; default: one per core')
    add('--json', metavar='FILE', help='write all findings, with the count of every class, as JSON')
    add('--browse', metavar='DIR', help='write DIR/index.html: images with their annotations, as training gets them')
    add('--num', type=positive, default=24, metavar='N', help='images to browse; default: %(default)s')


def run(args: argparse.Namespace) -> int:
    """Print the findings; return 1 after errors."""
    from mmlape.checkpoint.closed_world import allow_writing
    from mmlape.console.quiet import say
    from mmlape.lab.config.config_file import config_name
    from mmlape.lab.datasets.checks import full_check, print_report, write_report
    from mmlape.lab.inference.trained_model import opened_config
    from mmlape.lab.training.optim import quiet_logger

    with opened_config(args.config, args.cfg_options, also=('train_dataloader', 'val_dataloader')) as cfg:
        allow_writing(args.json, args.browse)
        with quiet_logger():
            report = full_check(cfg, args.splits, args.sample, args.workers)
        print_report(report)
        if args.quiet:  # which shows nothing of it
            for group in report.issues:
                say(f'mmlape: {group.severity}: {group.split} data: {group}', file=sys.stderr)
        if args.json:
            write_report(report, config_name(cfg), args.json)
            print(f'wrote {args.json}')
        if args.browse:
            from mmlape.lab.analysis.dataset_page import write_page

            print(f'wrote {write_page(cfg, args.browse, args.splits[0], args.num, report)}')
        return 1 if report.errors else 0

"""Make the mini data, pretrain a small DeiT with default PE and with LaPE, fine-tune Segmenter with both, Mask R-CNN
and UperNet with ViT-Adapter, evaluate, average, and write a report. Five to eleven minutes on two cores; if it is
killed, the same command continues."""

import argparse

from mmlape.lab.config.command_options import add_shorten, positive


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add('--work-dir', default='work_dirs/demo', metavar='DIR', help='default: %(default)s')
    add('--data', default='data/mini', metavar='DIR', help='the mini data, created if missing; default: %(default)s')
    add(
        '--num-seeds', type=positive, default=1, metavar='N', help='of Segmenter; 3 or more give intervals; default: 1'
    )
    add_shorten(parser)


def run(args: argparse.Namespace) -> int:
    import warnings

    warnings.filterwarnings('ignore')
    from mmlape.lab.experiments.demo import run_demo

    run_demo(args.work_dir, args.data, args.num_seeds, args.shorten)
    return 0

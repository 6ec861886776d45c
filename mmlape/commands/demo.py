"""`mmlape demo`: the whole job on the mini data, from pretraining to one report."""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.description = (
        'Make the mini data, pretrain a small DeiT with default PE and with LaPE, fine-tune Segmenter over three '
        'seeds, Mask R-CNN and UperNet with ViT-Adapter, evaluate, average, and write a report. Less than ten minutes '
        'on two cores; killed, the same call goes on.'
    )
    parser.add_argument('--work-dir', default='work_dirs/demo', metavar='DIR', help='default: %(default)s')
    parser.add_argument('--data', default='data/mini', metavar='DIR', help='the mini data; made if it is not there')
    parser.add_argument('--shorten', type=int, default=1, metavar='N', help='divide the lengths of all trainings by N')


def run(args: argparse.Namespace) -> int:
    """Runs the demo."""
    import warnings

    warnings.filterwarnings('ignore')
    from mmlape.experiments.demo import Demo

    Demo(args.work_dir, args.data, args.shorten, say=lambda text: print(text, flush=True)).run()
    return 0

"""Fit a linear classifier in closed form (ridge regression) to the features of K training images of each class, for
several seeds, and print its accuracy on the test set of a config. Nothing is trained."""

import argparse
from contextlib import nullcontext

from mmlape.lab.config.command_options import add_launcher, add_more, add_trained, add_trust, positive


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add_trained(parser)
    add('--shots', type=positive, nargs='+', default=[25], metavar='K', help='images of each class; default: 25')
    add('--data', metavar='CONFIG', help='another config, whose data are used; its classes may be others')
    add('--work-dir', metavar='DIR', help="default: the checkpoint's run, else work_dirs/<name of the config>")
    add('--out', metavar='FILE', help='file for the metrics; default: few_shot.json in the work dir')
    more = add_more(parser)
    more.add_argument(
        '--num-seeds', type=positive, default=3, metavar='N', help='choices of images, averaged; default: %(default)s'
    )
    more.add_argument('--l2', type=float, default=2.0**10, help='strength of the regularisation; default: %(default)g')
    add_launcher(more)
    add_trust(more)


def run(args: argparse.Namespace) -> int:
    from mmlape.lab.inference.evaluator import test
    from mmlape.lab.inference.trained_model import open_trained, opened_config
    from mmlape.projects.few_shot.dataset import few_shot_config

    trained = open_trained(args.trained, args.cfg_options, also=('train_dataloader',))
    trained.say_chosen()
    opened = opened_config(args.data, also=('train_dataloader',)) if args.data else nullcontext()
    with opened as data, trained.limited():  # a config that is named is run
        test(
            few_shot_config(trained.config, args.shots, args.num_seeds, args.l2, data),
            trained.weights(),
            args.work_dir,
            out=args.out,
            launcher=args.launcher,
            name='few_shot.json',
        )
    return 0

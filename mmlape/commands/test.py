"""`mmlape test`: evaluates a checkpoint, prints a table and writes metrics.json."""

import argparse

from mmlape.commands import add_trust_option, apply_trust


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.description = (
        'Evaluate a checkpoint on the test set of a configuration: overall metrics and those of every class. '
        'Every tensor of the checkpoint must be one of the model.'
    )
    add = parser.add_argument
    add('config', metavar='CONFIG', help='a configuration file, or mmlape::folder/name')
    add('checkpoint', metavar='CHECKPOINT', help='weights of the whole model')
    add('--work-dir', metavar='DIR', help='default: work_dirs/<name of the configuration>')
    add('--out', metavar='FILE', help='where the metrics go; default: metrics.json in the work dir')
    add(
        '--save-pred',
        nargs='?',
        const=True,
        metavar='DIR',
        help='save predictions: palette PNGs, COCO JSON, or labels; default: predictions in the work dir',
    )
    add('--launcher', choices=('none', 'pytorch', 'slurm'), default='none', help='default: none, a single process')
    add_trust_option(parser)
    add('--cfg-options', nargs='+', action='extend', metavar='KEY=VALUE', help='changes of the configuration')


def run(args: argparse.Namespace) -> int:
    """Evaluates."""
    from mmlape.engine.config import load_config
    from mmlape.engine.distributed.processes import leave_processes
    from mmlape.engine.evaluator import test

    apply_trust(args)
    test(
        load_config(args.config, args.cfg_options),
        args.checkpoint,
        args.work_dir,
        out=args.out,
        save_pred=args.save_pred,
        launcher=args.launcher,
    )
    leave_processes()
    return 0

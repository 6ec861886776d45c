"""`mmlape train`: trains a configuration, on one process or as one of several."""

import argparse

from mmlape.commands import add_trust_option, apply_trust


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.description = (
        'Train the model of a configuration. Checkpoints, logs and run.json go to the work dir, which must not hold '
        'another run. For several GPUs, or several CPU processes, start through tools/dist_train.sh.'
    )
    add = parser.add_argument
    add('config', metavar='CONFIG', help='a configuration file, or mmlape::folder/name')
    add('--work-dir', metavar='DIR', help='default: work_dirs/<name of the configuration>')
    add(
        '--resume',
        nargs='?',
        const='auto',
        metavar='PATH',
        help='go on from the newest whole checkpoint in the work dir (begin if there is none), or from PATH',
    )
    add(
        '--amp',
        nargs='?',
        const='bf16',
        choices=('bf16', 'fp16'),
        help='mixed precision; bf16 if nothing is said, fp16 on GPUs only',
    )
    add('--seed', type=seed, help='of everything random; default: drawn, and written to run.json')
    add('--deterministic', action='store_true', help='prefer deterministic kernels; slower on GPUs')
    _add_batch_options(parser)
    add('--launcher', choices=('none', 'pytorch', 'slurm'), default='none', help='default: none, a single process')
    add('--tensorboard', action='store_true', help='log for TensorBoard too, to vis_data in the work dir')
    add(
        '--allow-different-software',
        action='store_true',
        help='go on with other code or another stack than the run was begun with; run.json says so',
    )
    add(
        '--log-grad-norm',
        nargs='?',
        type=int,
        const=50,
        metavar='N',
        help='log the gradient norm of each layer every N iterations (50 if nothing is said); see plot-grad-norms',
    )
    add_trust_option(parser)
    add('--cfg-options', nargs='+', action='extend', metavar='KEY=VALUE', help='changes of the configuration')


def _add_batch_options(parser: argparse.ArgumentParser) -> None:
    """What to do where GPUs x images x accumulation is not the batch that the recipe is for; an error by default."""
    ways = parser.add_mutually_exclusive_group()
    for name, help in (
        ('auto-scale-lr', "scale the recipe's learning rate to the total batch"),
        ('accumulate', "accumulate to the recipe's batch, and stretch the schedule to as many images"),
        ('allow-batch-mismatch', "train with another total batch than the recipe's"),
    ):
        ways.add_argument(f'--{name}', dest='batch', action='store_const', const=name, help=help)


def seed(text: str) -> int:
    """A seed that every generator takes: 0 to 2**32 - 1."""
    value = int(text)
    if not 0 <= value < 2**32:
        raise argparse.ArgumentTypeError(f'{text} is not between 0 and 2**32 - 1')
    return value


def run(args: argparse.Namespace) -> int:
    """Trains, and says where the results are."""
    from mmlape.engine.config import add_tensorboard, load_config
    from mmlape.engine.distributed.processes import leave_processes
    from mmlape.engine.trainer import train

    apply_trust(args)
    cfg = load_config(args.config, args.cfg_options)
    if args.tensorboard:
        add_tensorboard(cfg)
    if args.log_grad_norm is not None:
        hook = dict(type='mmlape.GradientNormHook', interval=args.log_grad_norm)
        cfg.custom_hooks = [*(cfg.get('custom_hooks') or []), hook]
    record = train(
        cfg,
        args.work_dir,
        resume=True if args.resume == 'auto' else args.resume or False,
        amp=args.amp,
        seed=args.seed,
        deterministic=args.deterministic,
        launcher=args.launcher,
        batch=args.batch,
        allow_different_software=args.allow_different_software,
    )
    leave_processes()
    return 0 if record['state'] == 'finished' else 1

"""Train the model of a config. Checkpoints, logs and run.json go to the work dir, which must not hold another run. For
several GPUs, or several CPU processes, use tools/dist_train.sh."""

import argparse
import gc
from typing import TYPE_CHECKING

from mmlape.console.quiet import say
from mmlape.lab.config.command_options import add_train_options, changes, logging_hooks

if TYPE_CHECKING:
    from mmengine.config import Config


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_train_options(parser)
    parser.add_argument(
        '--smoke',
        action='store_true',
        help='try two steps, a checkpoint, a resume and a validation in a scratch folder, and print what the complete '
        'run will take; nothing stays',
    )


def run(args: argparse.Namespace) -> int:
    """Train; return 1 if the run did not finish.

    The garbage collector is off until the first batch: searching what the imports leave takes a fifth of the start-up.
    """
    gc.disable()
    try:
        return _train(args)
    finally:
        gc.enable()


def _train(args: argparse.Namespace) -> int:
    from mmlape.lab.config.config_file import load_config
    from mmlape.lab.studies import is_study
    from mmlape.lab.training.trainer import train

    cfg = load_config(args.config, [*(args.cfg_options or []), *changes(args)])
    if hooks := logging_hooks(args):
        cfg.custom_hooks = [*(cfg.get('custom_hooks') or []), *hooks]
    options: dict = dict(
        amp=args.amp,
        seed=args.seed,
        deterministic=args.deterministic,
        launcher=args.launcher,
        batch=args.batch,
        allow_different_software=args.allow_different_software,
        share=args.shorten,
        study=args.config if is_study(args.config) else None,
        arm=args.arm,
        compile=args.compile,
    )
    if args.smoke:
        return _smoke(cfg, args, options)
    record = train(cfg, args.work_dir, resume=True if args.resume == 'auto' else args.resume or False, **options)
    return 0 if record.state == 'finished' else 1


def _smoke(cfg: 'Config', args: argparse.Namespace, options: dict) -> int:
    """Print what a trial of the run has measured."""
    from mmlape.errors import ConfigError
    from mmlape.lab.training.smoke import smoke, summary

    if args.resume or args.launcher != 'none':
        raise ConfigError(
            '--smoke tries a new run in one process: leave out --resume and --launcher; with '
            "another total batch than the recipe's add --allow-batch-mismatch"
        )
    for line in summary(smoke(cfg, args.work_dir, **options)):
        say(line)
    return 0

"""Train the model of a config. Checkpoints, logs and run.json go to the work dir, which must not hold another run. For
several GPUs, or several CPU processes, use tools/dist_train.sh."""

import argparse

from mmlape.engine.options import add_train_options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_train_options(parser)


def run(args: argparse.Namespace) -> int:
    """Train; return 1 if the run did not finish."""
    from mmlape.engine.config import load_config
    from mmlape.engine.trackers import add_trackers
    from mmlape.engine.trainer import train

    cfg = load_config(args.config, args.cfg_options)
    add_trackers(cfg, args)
    if args.log_grad_norm is not None:
        hook = dict(type='mmlape.GradientNormHook', interval=args.log_grad_norm)
        cfg.custom_hooks = [*(cfg.get('custom_hooks') or []), hook]
    if args.log_pe_balance is not None:
        hook = dict(type='mmlape.PEBalanceHook', interval=args.log_pe_balance)
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
        share=args.shorten,
    )
    return 0 if record['state'] == 'finished' else 1

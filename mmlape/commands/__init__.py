"""One module a sub-command, with ``add_arguments(parser)`` and ``run(args)``; heavy imports are inside ``run``."""

import argparse


def add_trust_option(parser: argparse.ArgumentParser) -> None:
    """The option of every command that reads checkpoints."""
    parser.add_argument(
        '--trust-checkpoint',
        action='store_true',
        help='unpickle checkpoints without restrictions; any code in them runs with your rights',
    )


def apply_trust(args: argparse.Namespace) -> None:
    """Do what the option says, before a checkpoint is read."""
    if args.trust_checkpoint:
        from mmlape.checkpoint.reading import trust_checkpoints

        trust_checkpoints()

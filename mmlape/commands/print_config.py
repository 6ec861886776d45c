"""Print the values of a config, with those of its bases, as a config file: an arm of a study becomes a config of its
own by `mmlape print-config studies/NAME.yml:ARM > FILE.py`."""

import argparse

from mmlape.console.quiet import say
from mmlape.lab.config.command_options import add_config, add_shorten


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config(parser, or_run=True)
    parser.add_argument('--diff', metavar='OTHER', help='print only the values that differ from this config')
    add_shorten(parser)


def run(args: argparse.Namespace) -> int:
    from mmlape.checkpoint.plain_config import write_plain
    from mmlape.lab.config.config_file import differing_values
    from mmlape.lab.config.schedule import shorten
    from mmlape.lab.inference.trained_model import complete_config
    from mmlape.lab.recipe import Recipe
    from mmlape.lab.training.optim import quiet_logger

    cfg = complete_config(args.config, args.cfg_options)
    if args.shorten != 1:
        with quiet_logger():
            shorten(Recipe.of(cfg), args.shorten)
    if not args.diff:
        print(write_plain(cfg.to_dict()), end='')
        return 0
    for key, ours, theirs in differing_values(cfg, complete_config(args.diff)):
        say(f'{key}: {ours} -> {theirs}')
    return 0

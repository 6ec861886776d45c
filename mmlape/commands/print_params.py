"""Print the parameter groups of a config's optimiser, as training builds it: learning rate, weight decay, the rules of
paramwise_cfg that decide them, number of parameters, and names with their numbers written as *."""

import argparse

from mmlape.lab.config.command_options import add_config


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config(parser, or_run=True)
    parser.add_argument('--names', action='store_true', help='print every name in full')


def run(args: argparse.Namespace) -> int:
    from rich.table import Table

    from mmlape.console.terminal import console
    from mmlape.lab.config.config_file import config_name
    from mmlape.lab.inference.trained_model import opened_config
    from mmlape.lab.training.optim import parameter_groups

    with opened_config(args.config, args.cfg_options, also=('optim_wrapper',)) as cfg:
        groups = parameter_groups(cfg)
    total = sum(group.count for group in groups)
    columns = 'lr', 'decided by', 'weight decay', 'decided by', 'parameters', 'tensors', 'names'
    table = Table(*columns, title=f'{config_name(cfg)}: {total:,}')
    for group in groups:
        names = group.names if args.names else group.patterns()
        rates = ('frozen', '', '-', '')
        if group.lr is not None:
            rates = f'{group.lr:g}', group.rules[0], f'{group.weight_decay:g}', group.rules[1]
        table.add_row(*rates, f'{group.count:,}', str(len(group.names)), '\n'.join(names), end_section=True)
    console().print(table)
    return 0

"""`mmlape print-params`: the optimiser's groups as a table."""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.description = (
        "Print the groups of a configuration's optimiser: learning rate, weight decay, how many parameters, and their "
        'names with numbers written as *. They come from the optimiser as training builds it.'
    )
    parser.add_argument('config', metavar='CONFIG', help='a configuration file, or mmlape::folder/name')
    parser.add_argument('--names', action='store_true', help='every name in full')
    parser.add_argument(
        '--cfg-options', nargs='+', action='extend', metavar='KEY=VALUE', help='changes of the configuration'
    )


def run(args: argparse.Namespace) -> int:
    """Prints the table."""
    from rich.console import Console
    from rich.table import Table

    from mmlape.engine.config import config_name, load_config
    from mmlape.engine.optim import parameter_groups

    cfg = load_config(args.config, args.cfg_options)
    groups = parameter_groups(cfg)
    total = sum(group.count for group in groups)
    table = Table('lr', 'weight decay', 'parameters', 'tensors', 'names', title=f'{config_name(cfg)}: {total:,}')
    for group in groups:
        names = group.names if args.names else group.patterns()
        settings = ('frozen', '-') if group.lr is None else (f'{group.lr:g}', f'{group.weight_decay:g}')
        table.add_row(*settings, f'{group.count:,}', str(len(group.names)), '\n'.join(names), end_section=True)
    console = Console()
    if not console.is_terminal:
        console = Console(width=160)
    console.print(table)
    return 0

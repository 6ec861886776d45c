"""Draw, layer by layer, the correlation of the position embeddings that attention receives (LaPE, Figures 1, 3, 4, I
and II), from the live model; the PE's table; and, with Dual PatchNorm, the scales of its first norm in pixel space.
--balance measures on images what the layers do with the PE (MPVG, Figure 4). Several models
stand side by side."""

import argparse

from mmlape.errors import ConfigError
from mmlape.lab.config.command_options import add_cfg_options, add_grid, add_more, add_size, add_trust, height_width


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        'models',
        nargs='+',
        metavar='MODEL',
        help='a config, a checkpoint of any known layout, CONFIG@CHECKPOINT, or the folder of a run',
    )
    add('--out', required=True, metavar='DIR', help='receives the figures and the numbers (position.npz)')
    add('--layers', type=int, nargs='+', default=(), metavar='L', help='counted from 0; default: all')
    add_size(parser, 'an image in pixels; default: as the PE')
    add_cfg_options(parser)
    other = parser.add_argument_group('other figures')
    other.add_argument(
        '--bias-maps',
        action='store_true',
        help='draw, instead of the rest, what encodings inside attention add to the logits of --cells',
    )
    other.add_argument(
        '--balance',
        action='store_true',
        help='measure on --images, instead of the rest, what layers and last norm do with the PE (MPVG, Figure 4)',
    )
    other.add_argument(
        '--images',
        nargs='+',
        default=(),
        metavar='FILE',
        help="images of --bias-maps and --balance, normalised by ImageNet's mean and std; default of --bias-maps: "
        'one of a mean colour',
    )
    other.add_argument(
        '--cells',
        type=_cell,
        nargs='+',
        default=(),
        metavar='ROW,COLUMN',
        help='patches of --bias-maps, from 0; default: centre',
    )
    more = add_more(parser)
    more.add_argument(
        '--token', type=int, nargs=2, metavar=('ROW', 'COLUMN'), help='the token of the single maps; default: centre'
    )
    add_grid(more)
    more.add_argument(
        '--untrained', action='store_true', help='keep the initial weights of configs; load no checkpoints'
    )
    add_trust(more)


def _cell(text: str) -> tuple[int, int]:
    row, _, column = text.partition(',')
    if not (row.isdecimal() and column.isdecimal()):
        raise argparse.ArgumentTypeError(f'{text} is no cell, such as 7,7')
    return int(row), int(column)


def run(args: argparse.Namespace) -> int:
    """Write the figures, and print the numbers of each layer."""
    from pathlib import Path

    from mmlape.backbones import open_models
    from mmlape.projects.pe_figures.position import numbers_table, write_figures

    size = height_width(args.size, '--size')
    grid = tuple(args.grid) if args.grid else None
    if args.bias_maps and args.balance:
        raise ConfigError('--bias-maps and --balance are two figures: give one of them')
    mode = '--bias-maps' if args.bias_maps else '--balance'
    if (args.bias_maps or args.balance) and (args.size or args.token):
        raise ConfigError(f'--size and --token cannot be used with {mode}')
    if args.balance and (args.layers or not args.images):
        raise ConfigError('--balance shows all layers, on images: give --images FILE..., and no --layers')
    if not args.bias_maps and (args.cells or (args.images and not args.balance)):
        raise ConfigError('--cells needs --bias-maps, --images that or --balance')
    models = open_models(args.models, cfg_options=args.cfg_options, untrained=args.untrained, grid=grid)
    if args.balance:
        from mmlape.projects.pe_figures.balance import measure_models, write_balance

        for file in write_balance(measure_models(models, args.images), Path(args.out)):
            print(f'wrote {file}')
        return 0
    if args.bias_maps:
        from mmlape.projects.pe_figures.bias_maps import write_bias_maps

        for number, (name, model) in enumerate(models.items()):
            folder = Path(args.out) / (f'model{number}' if len(models) > 1 else '')
            files = write_bias_maps(name, model, folder, args.layers, args.cells, args.images)
            print(f'{name}: wrote {" and ".join(map(str, files))}')
        return 0
    views, files = write_figures(models, Path(args.out), size, args.token and tuple(args.token), args.layers)
    numbers_table(views)
    for file in files:
        print(f'wrote {file}')
    return 0

"""`mmlape visualize-pe`: what each layer sees of the position embedding, and the stem in pixel space."""

import argparse

from mmlape.commands import add_trust_option, apply_trust


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.description = (
        'Draw, layer by layer, how alike the position embeddings of two tokens are to attention (LaPE, Figures 1, 3, '
        "4, I and II), from the live model; the PE's table; the patch embedding's filters and, with Dual PatchNorm, "
        'the scales of its first norm in pixel space. Several models stand side by side.'
    )
    add = parser.add_argument
    add(
        'models',
        nargs='+',
        metavar='MODEL',
        help='a config, a checkpoint of any known layout, CONFIG@CHECKPOINT, or the folder of a run',
    )
    add('--out', required=True, metavar='DIR', help='where pictures and numbers (position.npz) go')
    add('--layers', type=int, nargs='+', default=(), metavar='L', help='counted from 0; default: all')
    add(
        '--size',
        type=int,
        nargs='+',
        metavar='S',
        help='side, or height and width, of an image in pixels; default: what the PE is made for',
    )
    add(
        '--token', type=int, nargs=2, metavar=('ROW', 'COLUMN'), help='the token to look at alone; default: the centre'
    )
    add('--grid', type=int, nargs=2, metavar=('ROWS', 'COLUMNS'), help="of a checkpoint's PE, where it is no square")
    add('--untrained', action='store_true', help='keep the initial weights of configs, without their checkpoints')
    add_trust_option(parser)
    add('--cfg-options', nargs='+', action='extend', metavar='KEY=VALUE', help='changes of the configs')


def run(args: argparse.Namespace) -> int:
    """Writes the pictures and prints the numbers of each layer."""
    from pathlib import Path

    from mmlape.analysis.position_report import numbers_table, write_figures
    from mmlape.analysis.subjects import OpenOptions, open_models
    from mmlape.errors import ConfigError

    apply_trust(args)
    if args.size and (len(args.size) > 2 or min(args.size) < 1):
        raise ConfigError(f'--size takes one or two positive numbers, not {args.size}')
    size = (args.size[0], args.size[-1]) if args.size else None
    options = OpenOptions(args.cfg_options, args.untrained, tuple(args.grid) if args.grid else None)
    subjects = open_models(args.models, options)
    views, files = write_figures(subjects, Path(args.out), size, args.token and tuple(args.token), args.layers)
    numbers_table(views)
    for file in files:
        print(f'wrote {file}')
    return 0

"""Compose scanned digits on photographs (both from scikit-learn) and write them as COCO (DIR/coco), as ADE20K
(DIR/ade), as single digits for classification (DIR/digits) and, with --vtab, as three sets with VTAB's lists
(DIR/vtab). The same seed gives the same bytes."""

import argparse
from typing import Any

from mmlape.engine.options import add_size, height_width


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options; their defaults are those of `mmlape.datasets.mini.make.MiniOptions`."""
    from mmlape.datasets.mini.make import MASKS, MiniOptions

    def add(name: str, help: str, default: Any, **options: Any) -> None:
        shown = ' '.join(map(str, default)) if isinstance(default, tuple) else default
        parser.add_argument(name, default=default, help=f'{help}; default: {shown}', **options)

    parser.add_argument('root', metavar='DIR', help='destination, for example data/mini')
    add('--train', type=int, metavar='N', default=MiniOptions.train, help='training scenes')
    add('--val', type=int, metavar='N', default=MiniOptions.val, help='validation scenes')
    add(
        '--digits',
        type=int,
        metavar='N',
        default=MiniOptions.digits,
        help='training crops of one digit; 0 for none',
    )
    add(
        '--vtab',
        type=int,
        metavar='N',
        default=MiniOptions.vtab,
        help='training images of each set of the mini VTAB (800 for its recipe); 0 for none',
    )
    side = MiniOptions.size[0]
    add_size(parser, f'a scene in pixels; default: {side}', default=MiniOptions.size)
    add(
        '--crop',
        type=int,
        metavar='S',
        default=MiniOptions.crop,
        help='side of a single-digit crop',
    )
    two: dict[str, Any] = dict(type=int, nargs=2, metavar=('MIN', 'MAX'))
    add('--objects', **two, default=MiniOptions.objects, help='digits in a scene')
    add('--digit-size', **two, default=MiniOptions.digit_size, help='side of a digit in pixels')
    add('--masks', choices=MASKS, default=MiniOptions.masks, help='how instance masks are written')
    add('--seed', type=int, default=MiniOptions.seed, help='random seed')
    parser.add_argument('--overwrite', action='store_true', help='replace existing mini data')


def run(args: argparse.Namespace) -> int:
    """Write the data, and print a table of it."""
    from dataclasses import fields

    from rich.table import Table

    from mmlape.console import console
    from mmlape.datasets.mini.make import MiniOptions, make_mini_data

    given = {option.name: getattr(args, option.name) for option in fields(MiniOptions)}
    given = {
        name: tuple(value) if isinstance(value, list) else value for name, value in given.items()
    }
    options = MiniOptions(**{**given, 'size': height_width(args.size, '--size')})
    rows = make_mini_data(args.root, options, overwrite=args.overwrite)
    table = Table(
        'format', 'split', 'images', 'objects', 'path', title=f'mini data, seed {options.seed}'
    )
    for row in rows:
        table.add_row(
            row['format'], row['split'], str(row['images']), str(row['objects']), row['path']
        )
    console().print(table)
    return 0

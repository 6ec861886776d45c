"""`mmlape make-mini-data`: small data sets of real handwriting for tests and try-outs."""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command; what is left out takes the default of `mmlape.datasets.mini.make.MiniOptions`."""
    from mmlape.datasets.mini.make import MASKS, MiniOptions

    parser.description = (
        'Compose scanned digits on photographs (both from scikit-learn) and write them as COCO (DIR/coco), '
        'as ADE20K (DIR/ade) and as single digits for classification (DIR/digits). The same seed gives the same bytes.'
    )
    parser.formatter_class = argparse.ArgumentDefaultsHelpFormatter
    parser.add_argument('root', metavar='DIR', help='where to, for example data/mini')
    add = parser.add_argument
    add('--train', type=int, metavar='N', default=MiniOptions.train, help='training scenes')
    add('--val', type=int, metavar='N', default=MiniOptions.val, help='validation scenes')
    add('--digits', type=int, metavar='N', default=MiniOptions.digits, help='training crops of one digit; 0 for none')
    add('--size', type=int, nargs='+', metavar='S', default=MiniOptions.size, help='scene side, or height and width')
    add('--crop', type=int, metavar='S', default=MiniOptions.crop, help='side of a single-digit crop')
    two = dict(type=int, nargs=2, metavar=('MIN', 'MAX'))
    add('--objects', **two, default=MiniOptions.objects, help='digits in a scene')
    add('--digit-size', **two, default=MiniOptions.digit_size, help='side of a digit in pixels')
    add('--masks', choices=MASKS, default=MiniOptions.masks, help='how instance masks are written')
    add('--seed', type=int, default=MiniOptions.seed, help='of every random choice')
    add('--overwrite', action='store_true', help='replace mini data that is already there')


def run(args: argparse.Namespace) -> int:
    """Generates the data and prints what was written."""
    from rich.console import Console
    from rich.table import Table

    from mmlape.datasets.mini.make import MiniOptions, make_mini_data
    from mmlape.errors import ConfigError

    if len(args.size) > 2:
        raise ConfigError(f'mini data: option size takes one or two numbers, not {len(args.size)}.')
    options = MiniOptions(
        train=args.train,
        val=args.val,
        digits=args.digits,
        size=(args.size[0], args.size[-1]),
        crop=args.crop,
        objects=tuple(args.objects),
        digit_size=tuple(args.digit_size),
        masks=args.masks,
        seed=args.seed,
    )
    rows = make_mini_data(args.root, options, overwrite=args.overwrite)
    table = Table('format', 'split', 'images', 'objects', 'path', title=f'mini data, seed {options.seed}')
    for row in rows:
        table.add_row(row['format'], row['split'], str(row['images']), str(row['objects']), row['path'])
    Console().print(table)
    return 0

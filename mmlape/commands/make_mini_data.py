"""Compose scanned digits on photographs (both from scikit-learn) and write them as COCO (DIR/coco), as ADE20K
(DIR/ade), as single digits for classification (DIR/digits) and, with --vtab, as three sets with VTAB's lists
(DIR/vtab). With --objects, compose photographed animals, plants and things instead, as COCO and as ADE20K; they are
the stamps of Debian's package tuxpaint-stamps-default. The same seed gives the same bytes."""

import argparse
from typing import Any

from mmlape.lab.config.command_options import add_size, height_width

OF_DIGITS = ('digits', 'vtab', 'crop', 'per_scene', 'digit_size', 'drawn_for')
OF_OBJECTS = ('density', 'object_size')


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options; their defaults are those of `MiniOptions` and `ObjectOptions`."""
    from mmlape.lab.datasets.mini.make import MiniOptions
    from mmlape.lab.datasets.mini.objects import STAMPS, ObjectOptions

    def add(target: Any, name: str, help: str, default: Any, **options: Any) -> None:
        shown = ' '.join(map(str, default)) if isinstance(default, tuple) else default
        target.add_argument(name, default=default, help=f'{help}; default: {shown}', **options)

    number: dict[str, Any] = dict(type=int, metavar='N')
    two: dict[str, Any] = dict(type=int, nargs=2, metavar=('MIN', 'MAX'))
    parser.add_argument('root', metavar='DIR', help='destination, for example data/mini')
    add(parser, '--train', 'training scenes', MiniOptions.train, **number)
    add(parser, '--val', 'validation scenes', MiniOptions.val, **number)
    side = MiniOptions.size[0]
    add_size(parser, f'a scene in pixels; default: {side}', default=MiniOptions.size)
    add(parser, '--seed', 'random seed', MiniOptions.seed, type=int)
    parser.add_argument('--overwrite', action='store_true', help='replace existing mini data')

    digits = parser.add_argument_group('digits')
    add(digits, '--digits', 'training crops of one digit; 0 for none', MiniOptions.digits, **number)
    add(
        digits,
        '--vtab',
        'training images of each set of the mini VTAB (800 for its recipe); 0 for none',
        MiniOptions.vtab,
        **number,
    )
    add(digits, '--crop', 'side of a single-digit crop', MiniOptions.crop, type=int, metavar='S')
    add(digits, '--per-scene', 'digits in a scene', MiniOptions.per_scene, **two)
    add(digits, '--digit-size', 'side of a digit in pixels', MiniOptions.digit_size, **two)
    digits.add_argument(
        '--drawn-for',
        type=int,
        nargs='+',
        metavar='S',
        help='draw more or less of the scenes of this size, with digits, background and border of its scale, on a '
        'canvas of --size; default: --size itself',
    )

    objects = parser.add_argument_group('objects')
    objects.add_argument(
        '--objects',
        dest='stamps',
        metavar='STAMPS',
        nargs='?',
        const=STAMPS,
        help=f'draw objects, not digits: the stamps in this folder; without one: {STAMPS}',
    )
    add(objects, '--density', 'objects on each 256 x 256 pixels of a scene', ObjectOptions.density, **two)
    add(objects, '--object-size', 'longer side of an object in pixels', ObjectOptions.object_size, **two)


def run(args: argparse.Namespace) -> int:
    """Write the data, and print a table of it."""
    import signal
    import sys
    from dataclasses import fields

    from mmlape.console.tables import print_table, text_table
    from mmlape.errors import ConfigError
    from mmlape.lab.datasets.mini.make import MiniOptions, make_mini_data
    from mmlape.lab.datasets.mini.objects import ObjectOptions
    from mmlape.lab.datasets.mini.writers import SceneOptions

    # an exit, so that nothing is left behind
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    options_class: type[SceneOptions] = ObjectOptions if args.stamps else MiniOptions
    others = (OF_DIGITS, MiniOptions, 'digits') if args.stamps else (OF_OBJECTS, ObjectOptions, 'objects (--objects)')
    for name in others[0]:
        if getattr(args, name) != getattr(others[1], name):
            raise ConfigError(f'--{name.replace("_", "-")} is an option of {others[2]}, which are not drawn')
    given = {option.name: getattr(args, option.name) for option in fields(options_class)}
    given = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    for name in ('size', 'drawn_for'):
        if given.get(name):
            given[name] = height_width(given[name], f'--{name.replace("_", "-")}')
    options = options_class(**given)
    rows = make_mini_data(args.root, options, overwrite=args.overwrite)
    columns = ('format', 'split', 'images', 'objects', 'path')
    found = [[row[name] for name in columns] for row in rows]
    print_table(text_table(columns, found, len(columns)), f'mini data, seed {options.seed}')
    return 0

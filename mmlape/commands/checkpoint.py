"""`mmlape checkpoint`: inspect, convert, publish a checkpoint, or average the weights of several."""

import argparse
import importlib

from mmlape.engine.options import add_trust, apply_trust


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions and their options."""
    actions = parser.add_subparsers(dest='action', required=True, metavar='ACTION')
    inspect = actions.add_parser('inspect', help='print what a file contains and what loads it')
    inspect.add_argument('file', help='a checkpoint of any known layout')
    convert = actions.add_parser('convert', help='write a backbone, or a complete model, in another layout')
    convert.add_argument('src', help='a checkpoint of any known layout')
    convert.add_argument('dst', help='a .pth, .safetensors or .npz file')
    convert.add_argument(
        '--to',
        required=True,
        metavar='LAYOUT',
        help='as the backbone has them: of a ViT mmlape, classifier, timm, lape, big_vision or open_clip; '
        'mmdet and mmseg write a released detector or segmentor, heads included',
    )
    publish = actions.add_parser('publish', help='write weights only, with the hash in the name and a model card')
    publish.add_argument('src', help='a checkpoint of a run')
    publish.add_argument('dst', help='name without hash; a .pth or .safetensors file')
    publish.add_argument('--weights', choices=('plain', 'ema'), default='plain', help='default: plain')
    average = actions.add_parser('average', help='average the weights (not the results) of checkpoints of one model')
    average.add_argument('files', nargs='+', help='checkpoints of one model')
    average.add_argument('--out', required=True, help='a .pth or .safetensors file')
    for action in (inspect, convert, publish, average):
        add_trust(action)
        action.add_argument(
            '--import',
            dest='modules',
            nargs='+',
            default=[],
            metavar='MODULE',
            help='modules that register own classes',
        )
    for action in (convert, average):
        action.add_argument('--overwrite', action='store_true', help='replace a file that exists')


def run(args: argparse.Namespace) -> int:
    """Run the action."""
    apply_trust(args)
    for module in args.modules:
        importlib.import_module(module)
    if args.action == 'inspect':
        from rich.table import Table

        from mmlape.checkpoint.converting import inspect
        from mmlape.console import console

        found = inspect(args.file)
        to_load = found.pop('to load it')
        table = Table('name', 'value', show_header=False)
        table.columns[1].overflow = 'fold'  # hashes are not shortened
        for name, value in found.items():
            table.add_row(name, str(value))
        console().print(table)
        print(f'to load it: {to_load}')  # on one line, to be copied
        return 0
    from mmlape.checkpoint import converting

    if args.action == 'convert':
        dropped = converting.convert(args.src, args.dst, args.to, args.overwrite)
        left_out = f'; left out {len(dropped)} tensors: {", ".join(dropped[:5])}' if dropped else ''
        print(f'wrote {args.dst}{left_out}')
    elif args.action == 'publish':
        print('wrote {} and {}'.format(*converting.publish(args.src, args.dst, args.weights)))
    else:
        converting.average(args.files, args.out, args.overwrite)
        print(f'wrote {args.out}, the mean weights of {len(args.files)} checkpoints')
    return 0

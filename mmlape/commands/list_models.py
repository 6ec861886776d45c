"""Print the names of models, one a line, with the class and the arguments that each stands for.
mmlape.get_model('NAME', pretrained='FILE') builds one; timm's plain ViTs are timm/NAME."""

import argparse
import importlib


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument('pattern', metavar='PATTERN', nargs='?', default='*', help="such as 'swin*' or '*-lape'")
    parser.add_argument(
        '--import', dest='modules', nargs='+', default=[], metavar='MODULE', help='modules that register own classes'
    )


def run(args: argparse.Namespace) -> int:
    """Print the names; 1 if none matches."""
    from mmlape.models.names import find_model, list_models

    for module in args.modules:
        importlib.import_module(module)
    names = list_models(args.pattern)
    width = max(map(len, names), default=0)
    for name in names:
        kind, options = find_model(name)
        arguments = ', '.join(f'{key}={value!r}' for key, value in options.items())
        print(f'{name:{width}}  {kind.__name__}({arguments})')
    if not names:
        print(f'no model matches {args.pattern!r}')
    return int(not names)

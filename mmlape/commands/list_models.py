"""Print the names of models, one a line, with the class and the arguments that each stands for.
mmlape.get_model('NAME', pretrained='FILE') builds one; timm's plain ViTs are timm/NAME."""

import argparse

from mmlape.lab.config.command_options import add_imports, import_modules


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        'pattern', metavar='PATTERN', nargs='?', default='*', help="such as 'swin*' or '*-lape'; default: all"
    )
    add_imports(parser)


def run(args: argparse.Namespace) -> int:
    """Print the names; 1 if none matches."""
    from mmlape.models.model_names import find_model, list_models

    import_modules(args.modules)
    names = list_models(args.pattern)
    width = max(map(len, names), default=0)
    for name in names:
        model_class, options = find_model(name)
        arguments = ', '.join(f'{key}={value!r}' for key, value in options.items())
        print(f'{name:{width}}  {model_class.__name__}({arguments})')
    if not names:
        print(f'no model matches {args.pattern!r}')
    return int(not names)

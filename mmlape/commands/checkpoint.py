"""`mmlape checkpoint`: inspect, convert or publish a checkpoint, or average the weights of several."""

import argparse
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from mmlape.console.quiet import say
from mmlape.lab.config.command_options import add_imports, add_more, add_quiet, add_trust, import_modules

if TYPE_CHECKING:
    from torch import Tensor

    from mmlape.checkpoint.trained_alone import FrozenPart


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest='action', required=True, metavar='ACTION')

    def add(name: str, text: str) -> argparse.ArgumentParser:
        return actions.add_parser(name, help=text, description=f'{text[0].upper()}{text[1:]}.')

    inspect = add('inspect', 'print what a file contains and what loads it')
    inspect.add_argument('file', help='a checkpoint of any known layout')
    convert = add('convert', 'write a backbone, or a complete model, in another layout')
    convert.add_argument('src', help='a checkpoint of any known layout')
    convert.add_argument('dst', help='a .pth or .safetensors file')
    convert.add_argument(
        '--to',
        required=True,
        metavar='LAYOUT',
        help='as the backbone has them: of a ViT mmlape, classifier, timm, lape or '
        'transformers-vit (-deit, -beit, -dinov2, -dinov3, -clip, -siglip); of a Swin transformers-swin, ...; '
        'mmdet and mmseg write a released detector or segmentor, heads included',
    )
    publish = add(
        'publish', 'write weights and what rebuilds their model, and nothing of the run; `hf upload` sends the file'
    )
    publish.add_argument(
        'src',
        metavar='FILE',
        help='a checkpoint of a run, or of others; or the folder of a run, for its best checkpoint',
    )
    publish.add_argument('dst', metavar='OUT', help='a .safetensors file; its name gets the first digits of its hash')
    publish.add_argument('--weights', choices=('plain', 'ema'), default='plain', help='default: plain')
    publish.add_argument(
        '--trained-only',
        action='store_true',
        help='leave out what is frozen, and name the file that it is of, which whoever loads the file needs, too',
    )
    average = add('average', 'average the weights (not the results) of checkpoints of one model')
    average.add_argument('files', nargs='+', help='checkpoints of one model')
    average.add_argument('--out', required=True, help='a .pth or .safetensors file')
    for action in (convert, average):
        action.add_argument('--overwrite', action='store_true', help='replace what is there already')
    for action in (inspect, convert, publish, average):
        add_quiet(action)
        more = add_more(action)
        add_imports(more)
        add_trust(more)


def run(args: argparse.Namespace) -> int:
    import_modules(args.modules)
    if args.action == 'inspect':
        from mmlape.checkpoint.converting import inspect
        from mmlape.console.tables import print_table, text_table

        found = inspect(args.file)
        to_load = found.pop('to load it')
        rows = [(name, str(value)) for name, value in found.items()]
        print_table(text_table(('name', 'value'), rows, 2), header=False)
        say(f'to load it: {to_load}')  # on one line, to be copied
        return 0
    from mmlape.checkpoint import converting

    if args.action == 'convert':
        dropped = converting.convert(args.src, args.dst, args.to, args.overwrite)
        left_out = f'; left out {len(dropped)} tensors: {", ".join(dropped[:5])}' if dropped else ''
        say(f'wrote {args.dst}{left_out}')
    elif args.action == 'publish':
        _publish(args)
    else:
        converting.average(args.files, args.out, args.overwrite)
        print(f'wrote {args.out}, the mean weights of {len(args.files)} checkpoints')
    return 0


def _publish(args: argparse.Namespace) -> None:
    from mmlape.checkpoint.converting import publish
    from mmlape.errors import CheckpointError, ConfigError
    from mmlape.lab.config.stored_config import published_config
    from mmlape.lab.inference.trained_model import weights_of_run

    src, config, lacking = args.src, '', ''
    if Path(src).is_dir():
        src, chosen = weights_of_run(Path(src))
        say(chosen)
    try:
        config = published_config(src)
    except (CheckpointError, ConfigError) as error:
        lacking = str(error)
    written = publish(src, args.dst, args.weights, config, _leave_out(src) if args.trained_only else None)
    say(f'wrote {written}')
    if lacking:
        say(f'without a config ({lacking}): whoever predicts with the file gives one with it')
    print(f'to share it: hf upload OWNER/NAME {shlex.quote(str(written))}')


def _leave_out(src: str) -> Callable[['dict[str, Tensor]'], 'dict[str, FrozenPart]']:
    """Return what takes the frozen tensors of a checkpoint out, and says what they are."""
    from mmlape.checkpoint.opening import open_file
    from mmlape.checkpoint.trained_alone import take_frozen
    from mmlape.lab.training.optim import started_model

    model, frozen = started_model(open_file(src, mmap=True))

    def leave_out(tensors: 'dict[str, Tensor]') -> 'dict[str, FrozenPart]':
        parts = take_frozen(model, frozen, tensors, src)
        for name, part in parts.items():
            say(f'left out: the frozen tensors of the {name}, which are those of {part.init_cfg["checkpoint"]}')
        return parts

    return leave_out

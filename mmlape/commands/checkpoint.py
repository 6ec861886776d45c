"""`mmlape checkpoint`: inspect, convert, publish, push or pull a checkpoint, or average the weights of several."""

import argparse
import shlex
import sys
from functools import partial
from pathlib import Path

from mmlape.lab.engine.options import add_imports, add_more, add_quiet, add_trust, import_modules
from mmlape.quiet import printable, say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest='action', required=True, metavar='ACTION')

    def add(name: str, text: str) -> argparse.ArgumentParser:
        return actions.add_parser(name, help=text, description=f'{text[0].upper()}{text[1:]}.')

    inspect = add('inspect', 'print what a file contains and what loads it')
    inspect.add_argument('file', help='a checkpoint of any known layout')
    convert = add('convert', 'write a backbone, or a complete model, in another layout')
    convert.add_argument('src', help='a checkpoint of any known layout')
    convert.add_argument('dst', help='a .pth, .safetensors or .npz file')
    convert.add_argument(
        '--to',
        required=True,
        metavar='LAYOUT',
        help='as the backbone has them: of a ViT mmlape, classifier, timm, lape, big_vision, open_clip or '
        'transformers-vit (-deit, -beit, -dinov2, -dinov3, -clip, -siglip); of a Swin transformers-swin, ...; '
        'mmdet and mmseg write a released detector or segmentor, heads included',
    )
    publish = add('publish', 'write weights only, with the hash in the name and a model card')
    publish.add_argument('src', help='a checkpoint of a run')
    publish.add_argument('dst', help='name without hash; a .pth or .safetensors file')
    publish.add_argument(
        '--weights', choices=('plain', 'ema'), default='plain', help='default: plain'
    )
    push = add('push', 'publish as a repository of the Hugging Face hub: weights, config and card')
    push.add_argument('src', help='a checkpoint of a run')
    push.add_argument('repository', metavar='OWNER/NAME', help='is made if it is not there')
    push.add_argument('--weights', choices=('plain', 'ema'), default='plain', help='default: plain')
    push.add_argument('--private', action='store_true', help='only its owners see a new repository')
    push.add_argument('--yes', action='store_true', help='send what is shown without asking')
    pull = add('pull', 'download such a repository')
    pull.add_argument(
        'repository', metavar='OWNER/NAME[@REVISION]', help='a branch, tag or commit after @'
    )
    pull.add_argument('folder', metavar='DIR', help='receives weights, config and card')
    pull.add_argument(
        '--config',
        metavar='CONFIG',
        help='a config, or an arm FILE.yml:ARM, of which all is used but model, data preprocessor and test pipeline; '
        'default: the one of this package that the checkpoint was trained with',
    )
    average = add('average', 'average the weights (not the results) of checkpoints of one model')
    average.add_argument('files', nargs='+', help='checkpoints of one model')
    average.add_argument('--out', required=True, help='a .pth or .safetensors file')
    for action in (convert, push, pull, average):
        action.add_argument(
            '--overwrite', action='store_true', help='replace what is there already'
        )
    for action in (inspect, convert, publish, push, pull, average):
        add_quiet(action)
        more = add_more(action)
        add_imports(more)
        add_trust(more)


def run(args: argparse.Namespace) -> int:
    import_modules(args.modules)
    if args.action == 'inspect':
        from rich.table import Table
        from rich.text import Text

        from mmlape.checkpoint.converting import inspect
        from mmlape.console import console
        from mmlape.extension.released import released_configs

        found = inspect(args.file, released_configs)
        to_load = found.pop('to load it')
        table = Table('name', 'value', show_header=False)
        table.columns[1].overflow = 'fold'  # hashes are not shortened
        for name, value in found.items():
            table.add_row(name, Text(printable(str(value))))
        console().print(table)
        say(f'to load it: {to_load}')  # on one line, to be copied
        return 0
    from mmlape.checkpoint import converting

    if args.action == 'convert':
        dropped = converting.convert(args.src, args.dst, args.to, args.overwrite)
        left_out = f'; left out {len(dropped)} tensors: {", ".join(dropped[:5])}' if dropped else ''
        say(f'wrote {args.dst}{left_out}')
    elif args.action == 'publish':
        print('wrote {} and {}'.format(*converting.publish(args.src, args.dst, args.weights)))
    elif args.action == 'push':
        from mmlape.checkpoint.hub import push

        confirm = partial(_confirm, args.repository, args.yes)
        address = push(
            args.src, args.repository, args.weights, args.private, args.overwrite, confirm
        )
        print(f'pushed to {address}')
    elif args.action == 'pull':
        from mmlape.checkpoint.hub import CONFIG
        from mmlape.lab.engine.pulled import pull

        files = pull(args.repository, args.folder, args.overwrite, args.config)
        print(f'wrote {", ".join(map(str, files))}')
        if len(files) > 1 and files[1].name == CONFIG:
            print(f'to test it: mmlape test {shlex.join([str(files[1]), str(files[0])])}')
    else:
        converting.average(args.files, args.out, args.overwrite)
        print(f'wrote {args.out}, the mean weights of {len(args.files)} checkpoints')
    return 0


def _confirm(repository: str, yes: bool, folder: Path, redacted: list[str]) -> bool:
    """Print what is to be published, and ask on a terminal whether it may be sent."""
    from mmlape.checkpoint.hub import CARD, CONFIG
    from mmlape.errors import CheckpointError, MMLaPEError
    from mmlape.lab.engine.pulled import own_config
    from mmlape.weights.plain_config import read_plain

    print((folder / CARD).read_text(encoding='utf-8'))
    print(f'to be published as {repository}; the card is above, and has the config too:')
    for file in sorted(folder.iterdir()):
        print(f'  {file.name}: {file.stat().st_size:,} bytes')
    print(f'redacted: {", ".join(redacted) or "nothing"}')
    if (folder / CONFIG).exists():
        try:
            own_config(read_plain((folder / CONFIG).read_bytes(), CONFIG), f'{repository}/{CONFIG}')
        except MMLaPEError as error:
            print(f'note: `mmlape checkpoint pull` will say of it: {error}')
    if yes:
        return True
    if not sys.stdin.isatty():
        raise CheckpointError(
            f'{repository}: nothing was sent, as nobody can be asked here; check it and pass --yes'
        )
    try:
        return input('Is all of it for publication? [y/N] ').strip().lower() in ('y', 'yes')
    except EOFError:
        return False

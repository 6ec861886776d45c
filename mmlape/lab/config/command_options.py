"""Command-line options that commands share, and those of training, which a study passes on to its runs."""

import argparse
import importlib
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from mmlape.errors import ConfigError
from mmlape.lab.extension import extensions
from mmlape.lab.studies import check_arm_name

CONFIG_HELP = 'a config file, mmlape::folder/name, or an arm of a study: studies/FILE.yml:ARM'
OR_RUN = '; or the folder of a run, for its config'


Arguments: TypeAlias = argparse._ActionsContainer
"""A parser, or a group of its options."""


def add_more(parser: argparse.ArgumentParser) -> Arguments:
    """Add the group of rare options, which help shows last."""
    return parser.add_argument_group('more')


def add_config(parser: Arguments, or_run: bool = False) -> None:
    """Add CONFIG and the changes of it; ``or_run`` where the folder of a run may stand for one."""
    parser.add_argument('config', metavar='CONFIG', help=CONFIG_HELP + (OR_RUN if or_run else ''))
    add_cfg_options(parser)


SEVERAL = '; or several of these, trained over one frozen ViT, which runs once'
"""What commands say that take more than one trained model."""


def add_trained(parser: argparse.ArgumentParser, more: str = '') -> None:
    """Add the words that name a trained model (`mmlape.lab.inference.trained_model`), and changes of its config."""
    parser.add_argument(
        'trained',
        nargs='+',
        metavar='MODEL',
        help='the folder of a run, for its best checkpoint, else its newest; or CONFIG CHECKPOINT; or a checkpoint '
        f'that holds its config: of a run, or hf://OWNER/NAME{more}',
    )
    parser.set_defaults(words_between_options=True)
    add_cfg_options(parser)


def add_cfg_options(parser: Arguments) -> None:
    """Add the changes of a config."""
    parser.add_argument('--cfg-options', nargs='+', action='extend', metavar='KEY=VALUE', help='changes of the config')


def add_shorten(parser: Arguments) -> None:
    """Add the share of the schedule."""
    parser.add_argument(
        '--shorten',
        type=float,
        default=1,
        metavar='SHARE',
        help='scale length, warm-up, milestones and intervals of the schedule, for example by 0.01; default: 1',
    )


def add_launcher(parser: Arguments) -> None:
    """Add the way in which the processes of a distributed run find each other."""
    parser.add_argument(
        '--launcher', choices=('none', 'pytorch', 'slurm'), default='none', help='how processes meet; default: none'
    )


def add_quiet(parser: Arguments) -> None:
    """Add the option of every command, and of its actions: absent from the namespace if it is not given."""
    parser.add_argument(
        '--quiet', action='store_true', default=argparse.SUPPRESS, help='print warnings and errors only'
    )


def add_trust(parser: Arguments) -> None:
    """Add the option of every command that reads checkpoints."""
    parser.add_argument(
        '--trust-checkpoint',
        action='store_true',
        help='unpickle checkpoints without restrictions; code in them runs with your rights',
    )


def add_imports(parser: Arguments) -> None:
    """Add the option of commands that build classes of a user's without a config."""
    parser.add_argument(
        '--import', dest='modules', nargs='+', default=[], metavar='MODULE', help='modules that register own classes'
    )


def import_modules(names: Iterable[str]) -> None:
    """Import what `--import` names, or raise ConfigError."""
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError as error:
            hint = '; PYTHONPATH=FOLDER adds a folder with modules' if error.name == name else ''
            raise ConfigError(f'--import {name}: {error}{hint}') from error


def seed(text: str) -> int:
    """Parse a seed that every generator takes: 0 to 2**32 - 1."""
    if not (text.isdecimal() and int(text) < 2**32):
        raise argparse.ArgumentTypeError(f'{text} is no whole number from 0 to 2**32 - 1')
    return int(text)


def positive(text: str) -> int:
    """Parse a whole number of at least 1."""
    if not (text.isdecimal() and int(text)):
        raise argparse.ArgumentTypeError(f'{text} is not a positive whole number')
    return int(text)


def arm_name(text: str) -> str:
    """Parse the name of an arm."""
    try:
        check_arm_name(text)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def logged() -> dict[str, tuple[str, str]]:
    """Return what `train --log-NAME` logs, see `mmlape.lab.extension.Extension`."""
    norms = 'log the gradient norm of each layer every N iterations, for plot-grad-norms'
    found = {'grad-norm': ('mmlape.GradientNormHook', norms)}
    return found | {name: entry for one in extensions() for name, entry in one.logged.items()}


def logging_hooks(args: argparse.Namespace) -> list[dict]:
    """Return the hooks of the options `--log-NAME` that are given."""
    intervals = {hook: getattr(args, f'log_{name.replace("-", "_")}') for name, (hook, _) in logged().items()}
    return [dict(type=hook, interval=each) for hook, each in intervals.items() if each is not None]


def add_grid(parser: Arguments) -> None:
    """Add ``--grid``, which a checkpoint needs whose PE is of no square."""
    parser.add_argument(
        '--grid', type=int, nargs=2, metavar=('ROWS', 'COLUMNS'), help="of a checkpoint's PE, if it is not square"
    )


def add_train_options(parser: argparse.ArgumentParser) -> None:
    """Add everything that `mmlape train` takes, for a run and for each run of a study."""
    add = parser.add_argument
    add_config(parser)
    add('--work-dir', metavar='DIR', help='default: work_dirs/<name of the config>')
    add(
        '--resume',
        nargs='?',
        const='auto',
        metavar='PATH',
        help='resume from the newest complete checkpoint in the work dir (start if there is none), or from PATH',
    )
    add(
        '--amp',
        nargs='?',
        const='bf16',
        choices=('bf16', 'fp16'),
        help='mixed precision, fp16 on GPUs only; default: none, and bf16 without a value',
    )
    add('--compile', choices=('layers',), help='compile the layers of the backbone, each alone; default: not')
    add(
        '--cache-features',
        type=positive,
        nargs='?',
        const=16,
        metavar='VIEWS',
        help='compute the features of a frozen ViT once for each of so many views of an image, and train from them; '
        'default: not, and 16 without a value',
    )
    add('--seed', type=seed, help='random seed; default: a random one, recorded in run.json')
    # for another total batch than the recipe's, by default an error
    policies = parser.add_mutually_exclusive_group()
    for name, help in (
        ('auto-scale-lr', "scale the recipe's learning rate to the total batch"),
        ('accumulate', "accumulate to the recipe's batch, and lengthen the schedule to as many images"),
        ('allow-batch-mismatch', "train with another total batch than the recipe's"),
    ):
        policies.add_argument(f'--{name}', dest='batch', action='store_const', const=name, help=help)
    more = add_more(parser)
    add_shorten(more)
    more.add_argument(
        '--deterministic', action='store_true', default=None, help='prefer deterministic kernels; slower on GPUs'
    )
    more.add_argument(
        '--cache-dir', metavar='DIR', help='where features are stored; default: ~/.cache/mmlape/features'
    )
    add_launcher(more)
    more.add_argument(
        '--arm',
        type=arm_name,
        metavar='NAME',
        help='name of the arm that the run belongs to, recorded in run.json; default: that of its folder',
    )
    more.add_argument(
        '--allow-different-software',
        action='store_true',
        help='resume with other code or another stack than the run started with; recorded in run.json',
    )
    for name, (_, help) in logged().items():
        more.add_argument(
            f'--log-{name}', nargs='?', type=positive, const=50, metavar='N', help=f'{help}; default: 50, if given'
        )
    add_trust(more)


def changes(args: argparse.Namespace) -> list[str]:
    """Return the changes of the config that the options of training stand for."""
    given = dict(views=args.cache_features, cache_dir=args.cache_dir)
    return [f'cache_features.{key}={value}' for key, value in given.items() if value is not None]


def add_size(parser: Arguments, of: str, **options: Any) -> None:
    """Add the size of an image, one number or two, for `height_width`.

    ``of`` says whose, and names the default.
    """
    parser.add_argument(
        '--size', type=int, nargs='+', metavar='S', help=f'side, or height and width, of {of}', **options
    )


def height_width(values: Sequence[int] | None, option: str) -> tuple[int, int] | None:
    """Return the height and width that an option gives as one number or two.

    None if it is not given.
    """
    if values and (len(values) > 2 or min(values) < 1):
        raise ConfigError(f'{option} takes one or two positive numbers, not {list(values)}')
    return (values[0], values[-1]) if values else None

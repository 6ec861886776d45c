"""The console command `mmlape`: one table of sub-commands, each a module that is imported only when it is called."""

import argparse
import difflib
import importlib
import os
import sys
from collections.abc import Sequence

from mmlape import __version__
from mmlape.errors import MMLaPEError

# name -> what it does; the module is mmlape.commands.NAME, with `add_arguments(parser)` and `run(args) -> status`
COMMANDS = {
    'train': 'train a config',
    'test': 'evaluate a checkpoint: box and mask AP, mIoU, accuracy',
    'multi-seed': 'train configs with several seeds, here or as Slurm jobs; averages',
    'status': 'how the runs below a work dir are: state, time left, last metric, host',
    'report': 'average and compare arms: a page, Markdown, LaTeX, CSV, JSON',
    'sample-size': 'how many seeds a difference needs, from the spread of a pilot',
    'image-demo': 'draw what a checkpoint sees on a picture',
    'visualize-pe': 'draw what each layer sees of the position embedding; stem and PE as pictures',
    'plot-grad-norms': 'draw gradient norms by depth, of runs trained with --log-grad-norm',
    'check-data': 'look at every file and annotation of a config before hours of training',
    'make-mini-data': 'write the mini data: handwritten digits in the layouts of COCO, ADE20K and ImageNet',
    'checkpoint': 'inspect, convert or publish a checkpoint; average the weights of several',
    'export-onnx': "write a config's backbone as an ONNX graph, checked against PyTorch",
    'print-params': 'print the parameters of a config and their optimiser groups',
    'model-cost': 'parameters and FLOPs of a config, by part',
    'demo': 'the whole job on the mini data, in less than ten minutes on two cores',
    'doctor': 'look at the installation; name the line that mends each problem',
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a sub-command.

    Args:
        argv: The command line without the program's name; `sys.argv` by default.

    Returns:
        The exit status: 0, what the sub-command returned, 1 after an error that was printed, 2 for bad usage, 130
        after an interrupt. `MMLAPE_DEBUG=1` lets errors through with their traceback.
    """
    argv = list(sys.argv[1:] if argv is None else argv)
    if not argv or argv[0] in ('-h', '--help'):
        print(usage())
        return 0 if argv else 2
    if argv[0] in ('-V', '--version'):
        print(f'mmlape {__version__}')
        return 0
    name = argv[0]
    if name not in COMMANDS:
        return _unknown(name)
    module = importlib.import_module(f'mmlape.commands.{name.replace("-", "_")}')
    parser = argparse.ArgumentParser(f'mmlape {name}', description=module.__doc__)
    module.add_arguments(parser)
    try:
        args = parser.parse_args(argv[1:])
    except SystemExit as stop:  # argparse has printed what is wrong, or the help
        return int(stop.code or 0)
    return _run(module.run, args)


def _run(run, args: argparse.Namespace) -> int:
    """Call a sub-command; an error raised on purpose, or a path that cannot be used, is shown without traceback."""
    try:
        return run(args) or 0
    except (MMLaPEError, ImportError) as error:
        if _wants_traceback():
            raise
        known = _stack_error() if isinstance(error, ImportError) else error
        if known is None:
            raise
        sys.stdout.flush()
        print(f'mmlape: error: {known}', file=sys.stderr)
        return 1
    except (FileNotFoundError, FileExistsError, NotADirectoryError, IsADirectoryError, PermissionError) as error:
        if error.filename is None or _wants_traceback():
            raise
        sys.stdout.flush()
        print(f'mmlape: error: {error.filename}: {error.strerror}', file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print('mmlape: interrupted', file=sys.stderr)
        return 130


def _wants_traceback() -> bool:
    return os.environ.get('MMLAPE_DEBUG', '0') not in ('', '0')


def _stack_error() -> MMLaPEError | None:
    """Return what is wrong with the installed stack, which is why most imports fail, or None."""
    from mmlape.environment.stack import require_stack

    try:
        require_stack()
    except MMLaPEError as error:
        return error
    return None


def usage() -> str:
    """Return the help: every sub-command with its one line."""
    width = max(map(len, COMMANDS))
    lines = [f'  {name.ljust(width)}  {words}' for name, words in COMMANDS.items()]
    head = 'usage: mmlape COMMAND [OPTIONS]\n\nLaPE and Dual PatchNorm backbones for OpenMMLab.\n\ncommands:'
    tail = "\n'mmlape COMMAND --help' describes the options, 'mmlape --version' prints the version."
    return '\n'.join([head, *lines, tail])


def _unknown(name: str) -> int:
    """Say that there is no such command, and which ones come close."""
    close = difflib.get_close_matches(name, COMMANDS, n=3, cutoff=0.5)
    hint = f'did you mean {" or ".join(close)}?' if close else f'there are: {", ".join(COMMANDS)}'
    print(f"mmlape: error: no command '{name}'; {hint}", file=sys.stderr)
    return 2

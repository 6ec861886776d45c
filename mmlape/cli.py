"""The console command `mmlape`, whose sub-commands are modules that are imported only when they are called."""

import argparse
import difflib
import importlib
import sys
from collections.abc import Sequence

from mmlape import __version__
from mmlape.commands import COMMANDS
from mmlape.errors import MMLaPEError
from mmlape.quiet import debugging, quiet_stack, say


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
    with quiet_stack():
        return _main(name, argv[1:])


def _main(name: str, argv: Sequence[str]) -> int:
    """Parse a sub-command's arguments and run it."""
    module = importlib.import_module(f'mmlape.commands.{name.replace("-", "_")}')
    parser = argparse.ArgumentParser(f'mmlape {name}', description=module.__doc__)
    module.add_arguments(parser)
    try:
        args = parser.parse_args(argv)
    except SystemExit as stop:  # argparse has printed the error or the help
        return int(stop.code or 0)
    status = _run(module.run, args)
    processes = sys.modules.get('mmlape.engine.distributed.processes')
    if processes:
        processes.leave_processes(status)
    return status


def _run(run, args: argparse.Namespace) -> int:
    """Run a sub-command; the package's own errors, and paths that cannot be used, are shown without traceback."""
    try:
        if getattr(args, 'trust_checkpoint', False):
            importlib.import_module('mmlape.checkpoint.reading').trust_checkpoints()
        return run(args) or 0
    except (MMLaPEError, ImportError) as error:
        if debugging():
            raise
        known = _stack_error() if isinstance(error, ImportError) else error
        if known is None:
            raise
        sys.stdout.flush()
        say(f'mmlape: error: {known}', file=sys.stderr)
        return 1
    except (FileNotFoundError, FileExistsError, NotADirectoryError, IsADirectoryError, PermissionError) as error:
        if error.filename is None or debugging():
            raise
        sys.stdout.flush()
        say(f'mmlape: error: {error.filename}: {error.strerror}', file=sys.stderr)
        return 1
    except KeyboardInterrupt as stop:
        print(f'mmlape: {str(stop) or "interrupted"}', file=sys.stderr)
        return 130
    except SystemExit as stop:  # a signal that a run has recorded, or an error that another process prints
        return stop.code or 0  # type: ignore[return-value]


def _stack_error() -> MMLaPEError | None:
    """Return the error of the installed stack, the usual cause of a failed import; None if it has none."""
    from mmlape.environment.stack import require_stack

    try:
        require_stack()
    except MMLaPEError as error:
        return error
    return None


def usage() -> str:
    """Return the help: every sub-command with its one line."""
    width = max(map(len, COMMANDS))
    lines = [f'  {name.ljust(width)}  {text}' for name, text in COMMANDS.items()]
    head = 'usage: mmlape COMMAND [OPTIONS]\n\nLaPE and Dual PatchNorm backbones for OpenMMLab.\n\ncommands:'
    tail = "\n'mmlape COMMAND --help' describes the options, 'mmlape --version' prints the version."
    return '\n'.join([head, *lines, tail])


def _unknown(name: str) -> int:
    """Print that there is no such command, and similar ones."""
    close = difflib.get_close_matches(name, COMMANDS, n=3, cutoff=0.5)
    hint = f'did you mean {" or ".join(close)}?' if close else f'there are: {", ".join(COMMANDS)}'
    print(f"mmlape: error: no command '{name}'; {hint}", file=sys.stderr)
    return 2

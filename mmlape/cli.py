"""The console command `mmlape`, whose sub-commands are modules that are imported only when they are called."""

import argparse
import difflib
import importlib
import sys
from collections.abc import Sequence

from mmlape import __version__
from mmlape.commands import COMMANDS, command_module
from mmlape.errors import MMLaPEError
from mmlape.quiet import debugging, quiet_stack


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
    try:
        module = command_module(name)
        parser = argparse.ArgumentParser(f'mmlape {name}', description=module.__doc__)
        module.add_arguments(parser)
    except ImportError as error:
        return _stop(error)
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
        return _stop(error)
    except (FileNotFoundError, FileExistsError, NotADirectoryError, IsADirectoryError, PermissionError) as error:
        if error.filename is None or debugging():
            raise
        sys.stdout.flush()
        print(f'mmlape: error: {error.filename}: {error.strerror}', file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print('mmlape: interrupted', file=sys.stderr)
        return 130
    except SystemExit as stop:  # a signal that a run has recorded, or an error that another process prints
        return stop.code or 0  # type: ignore[return-value]


def _stop(error: MMLaPEError | ImportError) -> int:
    """Print an error, or what is wrong with the stack if an import failed; raise what nobody can explain."""
    known = _stack_error(error) if isinstance(error, ImportError) else error
    if known is None or debugging():
        raise error
    sys.stdout.flush()
    print(f'mmlape: error: {known}', file=sys.stderr)
    return 1


def _stack_error(error: ImportError) -> MMLaPEError | None:
    """Return the error of the installed stack, the usual cause of a failed import; None if it has none."""
    from mmlape.environment.stack import missing_extra, require_stack

    lacking = missing_extra(error)
    if lacking:
        return lacking
    try:
        require_stack()
    except MMLaPEError as problem:
        return problem
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

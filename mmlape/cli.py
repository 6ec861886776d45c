"""The console command `mmlape`, whose sub-commands are modules that are imported only when they are called."""

import argparse
import difflib
import importlib
import os
import select
import sys
from collections.abc import Sequence

from mmlape import __version__
from mmlape.commands import COMMANDS, fill_parser, module_of
from mmlape.errors import MMLaPEError, failed_import, shown
from mmlape.mim import resolve_path
from mmlape.quiet import debugging, quiet_stack, say

_SMALLER = 'choose a smaller size, batch or number of processes; MMLAPE_DEBUG=1 shows the traceback'


def main(argv: Sequence[str] | None = None) -> int:
    """Run a sub-command.

    Args:
        argv: The command line without the program's name; `sys.argv` by default.

    Returns:
        The exit status: 0, what the sub-command returned, 1 after an error that was printed, 2 for
        bad usage, 130 after an interrupt. `MMLAPE_DEBUG=1` lets errors through with their
        traceback.
    """
    try:
        status = _command(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        if not _stdout_is_closed():
            raise
        return 141  # what a shell gives a program that SIGPIPE ends
    except KeyboardInterrupt:  # while the stack is imported; `_run` has what follows
        print('mmlape: interrupted', file=sys.stderr)
        return 130


def _command(argv: Sequence[str]) -> int:
    """Run the sub-command that a command line names, or print help or version."""
    if not argv or argv[0] in ('-h', '--help', 'help'):
        print(usage())
        return 0 if argv else 2
    if argv[0] in ('-V', '--version', 'version'):
        print(f'mmlape {__version__}')
        return 0
    name = argv[0]
    if name not in COMMANDS:
        return _unknown(name)
    try:
        parser = fill_parser(
            argparse.ArgumentParser(f'mmlape {name}', description=module_of(name).__doc__), name
        )
    except ImportError as error:
        return _stop(error)
    try:
        args = parser.parse_args(argv[1:])
    except SystemExit as stop:  # argparse has printed the error or the help
        return int(stop.code or 0)
    with quiet_stack(args.quiet):
        return _main(name, args)


def _stdout_is_closed() -> bool:
    """Check whether the reader of the output has gone, as `| head` does.

    Nothing more is written then.
    """
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    if not any(event & select.POLLERR for _, event in poll.poll(0)):
        return False
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return True


def _main(name: str, args: argparse.Namespace) -> int:
    """Run a sub-command."""
    status = _run(module_of(name).run, args)
    processes = sys.modules.get('mmlape.engine.distributed.processes')
    if processes:
        processes.leave_processes(status)
    return status


def _run(run, args: argparse.Namespace) -> int:
    """Run a sub-command; the package's own errors, and paths that cannot be used, are shown without traceback."""
    try:
        _check_config(args)
        if getattr(args, 'trust_checkpoint', False):
            importlib.import_module('mmlape.checkpoint.reading').trust_checkpoints()
        return run(args) or 0
    except MMLaPEError as error:
        return _stop(error)
    except (
        FileNotFoundError,
        FileExistsError,
        NotADirectoryError,
        IsADirectoryError,
        PermissionError,
    ) as error:
        if error.filename is None or debugging():
            raise
        sys.stdout.flush()
        say(f'mmlape: error: {error.filename}: {error.strerror}', file=sys.stderr)
        return 1
    except Exception as error:
        if failed_import(error):
            return _stop(error)
        if _is_lack_of_memory(error):
            return _stop(MMLaPEError(f'out of memory: {shown(error)}; {_SMALLER}'))
        raise
    except KeyboardInterrupt as stop:
        print(f'mmlape: {str(stop) or "interrupted"}', file=sys.stderr)
        return 130
    # a signal that a run has recorded, or an error that another process prints
    except SystemExit as stop:
        return stop.code or 0  # type: ignore[return-value]


def _is_lack_of_memory(error: Exception) -> bool:
    """Return whether memory ran out; without PyTorch only Python can have said so."""
    if 'torch' not in sys.modules:
        return isinstance(error, MemoryError)
    from mmlape.runs.failure_types import failure_type_of

    return failure_type_of(error).name == 'out-of-memory'


def _check_config(args: argparse.Namespace) -> None:
    """Raise ConfigError for a config that is not there, before the stack is imported, which takes seconds."""
    config = getattr(args, 'config', None)
    if isinstance(config, str) and config.endswith('.py'):
        resolve_path(config)


def _stop(error: Exception) -> int:
    """Print an error of this package, or what is wrong with the stack if an import failed."""
    if debugging():
        raise error
    known = (
        error if isinstance(error, MMLaPEError) else _stack_error(error) or _unknown_import(error)
    )
    sys.stdout.flush()
    say(f'mmlape: error: {known}', file=sys.stderr)
    return 1


def _stack_error(error: Exception) -> MMLaPEError | None:
    """Return the error of the installed stack, the usual cause of a failed import.

    None if it has none.
    """
    from mmlape.environment.stack import missing_extra, require_stack

    lacking = missing_extra(error)
    if lacking:
        return lacking
    try:
        require_stack()
    except MMLaPEError as problem:
        return problem
    return None


def _unknown_import(error: Exception) -> str:
    """Return one line about a package that is installed in a supported version and does not import."""
    return f'{shown(error)}; `mmlape doctor` checks the installation, MMLAPE_DEBUG=1 shows the traceback'


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

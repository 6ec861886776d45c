"""The console command `mmlape`, whose sub-commands are modules that are imported only when they are called."""

import argparse
import contextlib
import errno
import importlib
import io
import os
import select
import sys
from collections.abc import Sequence

import mmlape
from mmlape.commands import COMMANDS, GROUPS, fill_parser, parse_arguments
from mmlape.console.quiet import debugging, quiet_stack, say_error
from mmlape.errors import MMLaPEError, failed_import, shown, similar_to
from mmlape.openmmlab.mim import resolve_path

_SMALLER = 'choose a smaller size, batch or number of processes; MMLAPE_DEBUG=1 shows the traceback'

_OF_NO_FILE = (
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE,
)  # fmt: skip
"""Errors of disks and open files, which are shown without a traceback though they name no file."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a sub-command.

    Args:
        argv: The command line without the program's name; `sys.argv` by default.

    Returns:
        The exit status: 0, what the sub-command returned, 1 after an error that was printed, 2 for
        bad usage, 130 after an interrupt. `MMLAPE_DEBUG=1` lets errors through with their
        traceback.
    """
    _prepare_streams()
    try:
        status = _command(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
    except BaseException as error:  # of the help, of an import, or of what is left to be written
        status = _status_of(error)
        _drop_stdout()
    return status


def _prepare_streams() -> None:
    """Let no name end a command: what a stream cannot encode is written as an escape."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            with contextlib.suppress(OSError):  # another file took the stream's place
                stream.reconfigure(errors='backslashreplace')


def _command(argv: Sequence[str]) -> int:
    """Run the sub-command that a command line names, or print help or version."""
    if not argv or argv[0] in ('-h', '--help', 'help'):
        print(usage())
        return 0 if argv else 2
    if argv[0] in ('-V', '--version', 'version'):
        print(f'mmlape {mmlape.__version__}')
        return 0
    name = argv[0]
    if name not in COMMANDS:
        return _unknown(name)
    try:
        parser = fill_parser(
            argparse.ArgumentParser(f'mmlape {name}', description=COMMANDS[name].module.__doc__), name
        )
    except ImportError as error:
        return _status_of(error)
    usage_error = io.StringIO()
    try:
        with contextlib.redirect_stderr(usage_error):
            args = parse_arguments(parser, argv[1:])
    except SystemExit as stop:  # argparse has printed the help, or written the error
        if stop.code:
            say_error(usage_error.getvalue().rstrip())
        return int(stop.code or 0)
    sys.stderr.write(usage_error.getvalue())
    with quiet_stack(args.quiet):
        return _main(name, args)


def _stdout_is_closed() -> bool:
    """Check whether the reader of the output has gone, as `| head` does; else another pipe is broken."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def _drop_stdout() -> None:
    """Write nothing more to stdout, not even what is left in its buffer."""
    with contextlib.suppress(io.UnsupportedOperation):  # no file, in a test or a notebook
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _main(name: str, args: argparse.Namespace) -> int:
    """Run a sub-command."""
    try:
        for config in (getattr(args, 'config', None), *getattr(args, 'trained', ())[:1]):
            if isinstance(config, str) and config.endswith('.py'):
                resolve_path(config)  # one that is not there is told before the stack is imported, which takes seconds
        if getattr(args, 'trust_checkpoint', False):
            importlib.import_module('mmlape.checkpoint.opening').trust_checkpoints()
        status = COMMANDS[name].module.run(args) or 0
    except BaseException as error:
        status = _status_of(error)
    processes = sys.modules.get('mmlape.lab.distributed')
    if processes:
        processes.leave_processes(status)
    return status


def _status_of(error: BaseException) -> int:
    """Print an error that a user can do something about, and return its exit status; raise any other."""
    if isinstance(error, SystemExit):  # a signal that a run has recorded, or an error that another process prints
        return error.code or 0  # type: ignore[return-value]
    if isinstance(error, KeyboardInterrupt):  # it reaches all processes of a run
        if os.environ.get('RANK', '0') == '0':
            print(f'mmlape: {str(error) or "interrupted"}', file=sys.stderr)
        return 130
    if isinstance(error, BrokenPipeError) and _stdout_is_closed():
        _drop_stdout()
        return 141  # what a shell gives a program that SIGPIPE ends
    message = _message(error)
    if message is None or debugging():
        raise error
    say_error(f'mmlape: error: {message}')
    return 1


def _message(error: BaseException) -> str | None:
    """Return what to print of an error instead of its traceback; None for one that nobody expects."""
    if isinstance(error, MMLaPEError):
        return str(error)
    if isinstance(error, OSError) and error.filename is not None:
        return f'{error.filename}: {error.strerror or error}'
    if isinstance(error, OSError) and error.errno in _OF_NO_FILE:
        return error.strerror
    if failed_import(error):
        from mmlape.lab.environment import stack_error

        unknown = f'{shown(error)}; `mmlape doctor` checks the installation, MMLAPE_DEBUG=1 shows the traceback'
        return str(stack_error(error) or unknown)
    return f'out of memory: {shown(error)}; {_SMALLER}' if _is_lack_of_memory(error) else None


def _is_lack_of_memory(error: BaseException) -> bool:
    """Return whether memory ran out; without PyTorch only Python can have said so."""
    if 'torch' not in sys.modules:
        return isinstance(error, MemoryError)
    from mmlape.lab.runs.failures import failure_kind

    return failure_kind(error) == 'out-of-memory'


def usage() -> str:
    """Return the help: the sub-commands by group, each with its one line."""
    width = max(map(len, COMMANDS))
    lines = ['usage: mmlape COMMAND [OPTIONS]', '', mmlape.__doc__.partition('\n')[0]]
    for group in GROUPS:
        lines += ['', f'{group}:']
        lines += [
            f'  {name.ljust(width)}  {command.text}' for name, command in COMMANDS.items() if command.group == group
        ]
    tail = "\n'mmlape COMMAND --help' describes the options, 'mmlape --version' prints the version."
    return '\n'.join([*lines, tail])


def _unknown(name: str) -> int:
    """Print that there is no such command, and similar ones."""
    print(f"mmlape: error: no command '{name}'; {similar_to(name, COMMANDS)}", file=sys.stderr)
    return 2

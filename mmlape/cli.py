"""The console command `mmlape`, whose sub-commands are modules that are imported only when they are called."""

import argparse
import contextlib
import difflib
import errno
import importlib
import io
import os
import select
import sys
from collections.abc import Sequence

import mmlape
from mmlape.commands import COMMANDS, GROUPS, fill_parser, parse_arguments
from mmlape.errors import ConfigError, MMLaPEError, failed_import, shown
from mmlape.mim import resolve_path
from mmlape.quiet import debugging, launched, printable, quiet_stack, say_error

_SMALLER = 'choose a smaller size, batch or number of processes; MMLAPE_DEBUG=1 shows the traceback'

_ELSEWHERE = ', or write elsewhere'
_OF_FILES = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), f': free some space{_ELSEWHERE}'),
    errno.EFBIG: f': raise the limit of the size of a file (ulimit -f){_ELSEWHERE}',
    errno.EROFS: ': write elsewhere',
    errno.EIO: ': check the disk',
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), ': raise the limit of open files (ulimit -n)'),
    **dict.fromkeys(
        (
            errno.ENOENT,
            errno.EEXIST,
            errno.ENOTDIR,
            errno.EISDIR,
            errno.ENOTEMPTY,
            errno.EACCES,
            errno.EPERM,
            errno.ELOOP,
            errno.ENAMETOOLONG,
        ),
        '',
    ),
}
"""Errors of files and file systems, which are shown without a traceback, and what to do about them."""


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
        return status
    except BrokenPipeError:
        if not _stdout_is_closed():
            raise
        return 141  # what a shell gives a program that SIGPIPE ends
    except OSError as error:  # of the help, or of what is left to be written
        status = _stop_by_file(error)
        _drop_stdout()
        return status
    except KeyboardInterrupt:  # while the stack is imported; `_run` has what follows
        return _interrupted()


def _prepare_streams() -> None:
    """Let no name and no closed stream end a command: what a stream cannot encode is written as an escape."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:  # closed, by a shell's >&-; the next file would get its number
            os.open(os.devnull, os.O_RDWR)
    for name in ('stdout', 'stderr'):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, 'w', encoding='utf-8'))  # noqa: SIM115
        elif isinstance(getattr(sys, name), io.TextIOWrapper):
            with contextlib.suppress(OSError):  # another file took the stream's place
                getattr(sys, name).reconfigure(errors='backslashreplace')


def _require_printable(args: argparse.Namespace) -> None:
    """Raise ConfigError for a name of a file that no log, record or table could show."""
    words = [('trained', word) for word in getattr(args, 'trained', ())]
    for name, value in (*vars(args).items(), *words):
        if not isinstance(value, str) or name == 'title':
            continue
        where = f'{name}={value!a}'
        if printable(value.replace('\n', '\0')) != value:
            raise ConfigError(f'{where} has control characters: rename the file or folder')
        if value.encode('utf-8', 'replace').decode() != value:
            raise ConfigError(
                f'{where} is not text in the encoding of file names ({sys.getfilesystemencoding()}): '
                'rename the file or folder, or set LC_ALL=C.UTF-8'
            )


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
        return _stop(error)
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
    """Check whether the reader of the output has gone, as `| head` does.

    Nothing more is written then.
    """
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    if not any(event & select.POLLERR for _, event in poll.poll(0)):
        return False
    _drop_stdout()
    return True


def _drop_stdout() -> None:
    """Write nothing more to stdout, not even what is left in its buffer."""
    with contextlib.suppress(io.UnsupportedOperation):  # no file, in a test or a notebook
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _main(name: str, args: argparse.Namespace) -> int:
    """Run a sub-command."""
    status = _run(COMMANDS[name].module.run, args)
    processes = sys.modules.get('mmlape.lab.engine.distributed.processes')
    if processes:
        processes.leave_processes(status)
    return status


def _run(run, args: argparse.Namespace) -> int:
    """Run a sub-command; the package's own errors, and paths that cannot be used, are shown without traceback."""
    try:
        _require_printable(args)
        _check_config(args)
        if getattr(args, 'trust_checkpoint', False):
            importlib.import_module('mmlape.weights.reading').trust_checkpoints()
        return run(args) or 0
    except MMLaPEError as error:
        return _stop(error)
    except BrokenPipeError:
        raise
    except OSError as error:
        return _stop_by_file(error)
    except Exception as error:
        if failed_import(error):
            return _stop(error)
        if _is_lack_of_memory(error):
            return _stop(MMLaPEError(f'out of memory: {shown(error)}; {_SMALLER}'))
        if launched():  # one line for all processes, beside the traceback of each
            say_error(f'mmlape: error: {shown(error)}')
        raise
    except KeyboardInterrupt as stop:
        return _interrupted(str(stop))
    # a signal that a run has recorded, or an error that another process prints
    except SystemExit as stop:
        return stop.code or 0  # type: ignore[return-value]


def _stop_by_file(error: OSError) -> int:
    """Print an error of a file or file system; raise one that is not of these."""
    advice = _OF_FILES.get(error.errno)
    # one without a file is of a write only if it is of the disk
    if advice is None or (not advice and error.filename is None) or debugging():
        raise error
    where = '' if error.filename is None else f'{error.filename}: '
    say_error(f'mmlape: error: {where}{error.strerror}{advice}')
    return 1


def _interrupted(reason: str = '') -> int:
    """Print that Ctrl-C ended the command; it reaches all processes of a run, of which the first one prints it."""
    if os.environ.get('RANK', '0') == '0' or not launched():
        print(f'mmlape: {reason or "interrupted"}', file=sys.stderr)
    return 130


def _is_lack_of_memory(error: Exception) -> bool:
    """Return whether memory ran out; without PyTorch only Python can have said so."""
    if 'torch' not in sys.modules:
        return isinstance(error, MemoryError)
    from mmlape.lab.runs.failures import failure_type_of

    return failure_type_of(error).name == 'out-of-memory'


def _check_config(args: argparse.Namespace) -> None:
    """Raise ConfigError for a config that is not there, before the stack is imported, which takes seconds."""
    for config in (getattr(args, 'config', None), *getattr(args, 'trained', ())[:1]):
        if isinstance(config, str) and config.endswith('.py'):
            resolve_path(config)


def _stop(error: Exception) -> int:
    """Print an error of this package, or what is wrong with the stack if an import failed."""
    if debugging():
        raise error
    message = error if isinstance(error, MMLaPEError) else _stack_error(error) or _unknown_import(error)
    say_error(f'mmlape: error: {message}')
    return 1


def _stack_error(error: Exception) -> MMLaPEError | None:
    """Return the error of the installed stack, the usual cause of a failed import.

    None if it has none.
    """
    from mmlape.lab.environment.stack import missing_extra, require_stack

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
    close = difflib.get_close_matches(name, COMMANDS, n=3, cutoff=0.5)
    hint = f'did you mean {" or ".join(close)}?' if close else f'there are: {", ".join(COMMANDS)}'
    print(f"mmlape: error: no command '{name}'; {hint}", file=sys.stderr)
    return 2

"""The closed world: what is built and read of values that nobody has read reaches no code, process, network or file.

Python reports each of these to an audit hook before it happens, whichever package asks for it and by whatever name. So
no type and no text of a config is judged by its name: a hostile value is a name for something that cannot be reached.
"""

import builtins
import contextlib
import dis
import functools
import os
import re
import site
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType

from torch import nn

from mmlape.errors import CheckpointError
from mmlape.weights import reading

PROCESSES = ('os.exec', 'os.posix_spawn', 'os.spawn', 'os.startfile', 'os.system', 'pty.spawn', 'subprocess.Popen')
NETWORK = ('socket.getaddrinfo', 'socket.gethostbyname', 'socket.sendto', 'urllib.Request')
CHANGES = ('os.link', 'os.mkdir', 'os.remove', 'os.rename', 'os.rmdir', 'os.symlink', 'os.truncate')
"""Events of Python's table of audit events."""
PIPES = ('multiprocessing.', 'torch.distributed.', 'torch.multiprocessing.')
"""Packages that unpickle what processes of one run send each other; everything else unpickles files."""

_depth = 0
_writable: list[str] = []


class ClosedError(CheckpointError, PermissionError):
    """A value of others asks for what is closed."""


@contextlib.contextmanager
def closed(*writable: str | Path) -> Iterator[None]:
    """Refuse, in the block, what would run code of a file, start a process, open a connection or write a file.

    Modules of installed packages may be imported, and files read. MMEngine imports nothing by its name. After
    ``trust_checkpoints`` nothing is refused.

    Args:
        *writable: Files and folders that are written, beside those for temporary files.

    Raises:
        ClosedError: Something is asked for.
    """
    global _depth
    if reading.is_trusted():
        yield
        return
    _watch()
    count = len(_writable)
    _depth += 1
    allow_writing(*writable)
    try:
        with no_imports_by_name():
            yield
    finally:
        _depth -= 1
        del _writable[count:]


def allow_writing(*places: object) -> None:
    """Add files and folders that the innermost block of `closed` may write; what is no path is left out."""
    _writable.extend(os.path.realpath(place) for place in places if _depth and isinstance(place, str | Path))


def as_now() -> Callable[[], contextlib.AbstractContextManager[None]]:
    """Return what closes the world later if it is closed now: for what is built here, and called behind the block."""
    return closed if _depth else contextlib.nullcontext


@contextlib.contextmanager
def opened() -> Iterator[None]:
    """Allow everything in the block: for code that no value of others has chosen, such as compilers of kernels."""
    global _depth
    before, _depth = _depth, 0
    try:
        yield
    finally:
        _depth = before


def open_forward(model: nn.Module) -> None:
    """Allow everything in the forward passes of a model, which may compile."""
    stacks: list[contextlib.ExitStack] = []

    def before(*_) -> None:
        stacks.append(contextlib.ExitStack())
        stacks[-1].enter_context(opened())

    model.register_forward_pre_hook(before)
    model.register_forward_hook(lambda *_: stacks.pop().close(), always_call=True)


@contextlib.contextmanager
def no_imports_by_name() -> Iterator[None]:
    """Have MMEngine's registries, once they are imported, find nothing but what they hold."""
    registry = sys.modules.get('mmengine.registry.registry')
    find = getattr(registry, 'get_object_from_string', None)
    if registry:
        registry.get_object_from_string = lambda name: None
    try:
        yield
    finally:
        if registry:
            registry.get_object_from_string = find


@functools.cache
def _watch() -> None:
    """Install the hook, which stays, as Python removes none."""
    _temporary()
    sys.addaudithook(_audit)


@functools.cache
def _temporary() -> str:
    return os.path.realpath(tempfile.gettempdir())  # which writes a file, and remembers the folder


def _audit(event: str, args: tuple) -> None:
    """Raise ClosedError for an event that is closed."""
    if not _depth:
        return
    if event == 'exec':
        _check_code(args[0])
    elif event == 'open':
        _check_open(*args)
    elif event == 'pickle.find_class':
        if not sys._getframe(1).f_globals.get('__name__', '').startswith(PIPES):
            _refuse(f'unpickling {".".join(args)}')
    elif event in ('ctypes.dlopen', 'import'):
        name = args[0] if event == 'ctypes.dlopen' else args[1]
        if isinstance(name, str) and os.sep in name and not _is_installed(name):
            _refuse(f'loading {name}')
    elif event == 'socket.connect':
        if isinstance(args[1], tuple):
            _refuse(f'connecting to {args[1][0]}')
    elif event in PROCESSES or event in NETWORK:
        _refuse(f'{event} of {args[0]!r}')
    elif event in CHANGES:
        _check_writable(args[0])


def _refuse(what: str) -> None:
    raise ClosedError(
        f'refused, {what[:200]}: a value of a config that nobody has read asks for it; give a config of your own, or, '
        'if you trust the source, pass --trust-checkpoint'
    )


def _check_code(code: CodeType) -> None:
    """Refuse code of a file that is not of an installed package, and text that calls more than one function by name.

    Toolboxes evaluate the name of a function of theirs, and ``torch.`` before a text of the config.
    """
    name = code.co_filename
    if name == '<string>':
        calls = any(re.match('CALL(?!_INTRINSIC)', step.opname) for step in dis.get_instructions(code))
        nested = any(isinstance(value, CodeType) for value in code.co_consts)
        if calls and (nested or len(code.co_names) != 1 or hasattr(builtins, code.co_names[0])):
            _refuse(f'evaluating {code.co_names}')
    elif not name.startswith('<') and not _is_installed(name):
        _refuse(f'running {name}')


def _check_open(path: object, mode: str | None, flags: int) -> None:
    if isinstance(path, str | bytes) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
        _check_writable(path)


def _check_writable(path: object) -> None:
    if not isinstance(path, str | bytes | os.PathLike):
        return
    place = os.path.realpath(os.fsdecode(path))
    if not f'{place}{os.sep}'.startswith(tuple(f'{one}{os.sep}' for one in (os.devnull, _temporary(), *_writable))):
        _refuse(f'writing {place}')


@functools.cache
def _installed() -> tuple[str, ...]:
    places = {*sysconfig.get_paths().values(), *site.getsitepackages(), site.getusersitepackages()}
    return tuple(f'{place}{os.sep}' for place in places if place)


def _is_installed(file: str) -> bool:
    """Check whether a file is in the places of Python's packages, or in a package that is imported already."""
    if file.startswith(_installed()):
        return True
    packages = {name.partition('.')[0] for name in list(sys.modules)}
    paths = (path for name in packages for path in getattr(sys.modules.get(name), '__path__', ()))
    return any(file.startswith(f'{path}{os.sep}') for path in paths)

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
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import CodeType
from typing import Any

from torch import nn

from mmlape.checkpoint import opening
from mmlape.errors import CheckpointError

PROCESSES = ('os.exec', 'os.posix_spawn', 'os.spawn', 'os.startfile', 'os.system', 'pty.spawn', 'subprocess.Popen')
NETWORK = ('socket.getaddrinfo', 'socket.gethostbyname', 'socket.sendto', 'urllib.Request')
CHANGES = (
    'os.chmod', 'os.chown', 'os.link', 'os.mkdir', 'os.remove', 'os.rename', 'os.rmdir', 'os.symlink', 'os.truncate',
    'shutil.rmtree',
)  # fmt: skip
"""Events of Python's table of audit events."""
PIPES = (
    'mmengine.dataset.base_dataset', 'mmengine.dist.', 'multiprocessing.', 'torch.distributed.',
    'torch.multiprocessing.',
)  # fmt: skip
"""Modules that unpickle what processes of one run have pickled for each other; everything else unpickles files."""
ARRAYS = {'_codecs.encode', 'numpy.dtype', 'numpy.ndarray'}
"""Beside NumPy's two functions that rebuild values: what pickled arrays are made of, such as those of CIFAR."""

_heirs: weakref.WeakKeyDictionary[threading.Thread, list[str]] = weakref.WeakKeyDictionary()
"""Threads that were started in a closed world, with what may be written there."""


class _World(threading.local):
    """How many blocks have closed the world of a thread, which files may be written, and whether imports are off."""

    def __init__(self) -> None:
        inherited = _heirs.get(threading.current_thread())
        self.depth, self.unnamed = int(inherited is not None), int(inherited is not None)
        self.writable = [] if inherited is None else inherited


_world = _World()


class ClosedError(CheckpointError, PermissionError):
    """A value of others asks for what is closed."""


@contextlib.contextmanager
def closed(*writable: str | Path) -> Iterator[None]:
    """Refuse, in the block, what would run code of a file, start a process, open a connection or write a file.

    This is for the thread, and for those that it starts in the block. Modules of installed packages may be imported,
    and files read. MMEngine imports nothing by its name. After ``trust_checkpoints`` nothing is refused.

    Args:
        *writable: Files and folders that are written, beside those for temporary files.

    Raises:
        ClosedError: Something is asked for.
    """
    if opening.is_trusted():
        yield
        return
    _watch()
    before = _world.writable
    _world.depth, _world.writable = _world.depth + 1, [*before]
    allow_writing(*writable)
    try:
        with no_imports_by_name():
            yield
    finally:
        _world.depth, _world.writable = _world.depth - 1, before


def allow_writing(*places: object) -> None:
    """Add files and folders that the innermost block of `closed` may write; what is no path is left out."""
    _world.writable += [os.path.realpath(place) for place in places if _world.depth and isinstance(place, str | Path)]


def as_now() -> Callable[[], contextlib.AbstractContextManager[None]]:
    """Return what closes the world later if it is closed now: for what is built here, and called behind the block."""
    return closed if _world.depth else contextlib.nullcontext


def as_parent(initialise: Callable[[int], None]) -> Callable[[int], None]:
    """Return what closes the world of a data loader's worker, if it is closed now, and initialises it.

    A worker that is forked has it closed; one that is spawned begins anew.
    """
    return functools.partial(_initialise_closed, initialise) if _world.depth else initialise


def _initialise_closed(initialise: Callable[[int], None], number: int) -> None:
    initialise(number)
    _lasting.enter_context(closed())


_lasting = contextlib.ExitStack()


@contextlib.contextmanager
def opened() -> Iterator[None]:
    """Allow everything in the block: for code that no value of others has chosen, such as compilers of kernels."""
    before, _world.depth = _world.depth, 0
    try:
        yield
    finally:
        _world.depth = before


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
    if registry := sys.modules.get('mmengine.registry.registry'):
        _guard_names(registry)
    _world.unnamed += 1
    try:
        yield
    finally:
        _world.unnamed -= 1


@functools.cache
def _guard_names(registry: Any) -> None:
    """Have a module of registries ask whether it may import; it stays so, as other threads may be in it."""
    find = registry.get_object_from_string
    registry.get_object_from_string = lambda name: None if _world.unnamed else find(name)


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
    if not _world.depth:
        return
    if event == 'exec':
        _check_code(args[0])
    elif event == 'open':
        _check_open(*args)
    elif event == 'pickle.find_class':
        name = '.'.join(args)
        is_array = name in ARRAYS or re.fullmatch(r'numpy\._?core\.multiarray\.(_reconstruct|scalar)', name)
        if not is_array and not sys._getframe(1).f_globals.get('__name__', '').startswith(PIPES):
            _refuse(f'unpickling {name}')
    elif event in ('ctypes.dlopen', 'import'):
        name = args[0] if event == 'ctypes.dlopen' else args[1]
        if isinstance(name, str) and os.sep in name and not _is_installed(name):
            _refuse(f'loading {name}')
    elif event == 'socket.connect':
        if isinstance(args[1], tuple):
            _refuse(f'connecting to {args[1][0]}')
    elif event.startswith('_thread.start_'):
        thread = getattr(args[0], '__self__', None)
        if isinstance(thread, threading.Thread):
            _heirs[thread] = _world.writable
    elif event in PROCESSES or event in NETWORK:
        _refuse(f'{event} of {args[0]!r}')
    elif event in CHANGES:
        # a link may be to any file; what is in a folder that is open is below one that shutil.rmtree was asked for
        is_open = event != 'os.truncate' and isinstance(args[-1], int) and args[-1] >= 0
        for path in () if is_open else args[event == 'os.symlink' : 2]:
            _check_writable(path, event)


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
    if isinstance(path, str | bytes) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC):
        _check_writable(path)


def _check_writable(path: object, event: str = 'open') -> None:
    """Refuse what is not below a place that may be written.

    To write it, folders are made above it, and a hidden file beside it (`mmlape.files.atomic_path`).
    """
    if not isinstance(path, str | bytes | os.PathLike):
        return
    place = os.path.realpath(os.fsdecode(path))
    folder, name = os.path.split(place)
    is_hidden = name.startswith('.') and f'.{os.getpid()}' in name
    for one in (os.devnull, _temporary(), *_world.writable):
        is_below, is_above = f'{place}{os.sep}'.startswith(f'{one}{os.sep}'), one.startswith(f'{place}{os.sep}')
        if is_below or (is_above and event == 'os.mkdir') or (is_hidden and folder == os.path.dirname(one)):
            return
    _refuse(f'writing {place}')


@functools.cache
def _installed() -> tuple[str, ...]:
    places = {*sysconfig.get_paths().values(), *site.getsitepackages(), site.getusersitepackages()}
    return _folders(filter(None, places))


def _folders(places: Iterable[str]) -> tuple[str, ...]:
    """Return the beginnings of what is in folders, as they are named and without links."""
    return tuple(f'{folder}{os.sep}' for place in places for folder in {place, os.path.realpath(place)})


def _is_installed(file: str) -> bool:
    """Check whether a file is in the places of Python's packages, or in a package that is imported already."""
    if not os.path.isabs(file):  # as packages are named
        return False
    names = os.path.abspath(file), os.path.realpath(file)
    if any(name.startswith(_installed()) for name in names):
        return True
    packages = {name.partition('.')[0] for name in list(sys.modules)}
    paths = (path for name in packages for path in getattr(sys.modules.get(name), '__path__', ()))
    return any(name.startswith(_folders(paths)) for name in names)

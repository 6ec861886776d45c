"""A Python for the tools that the tests start: each call is a fork of one process that has imported the libraries.

`executable()` starts that server, one for all processes of the tests, and returns the path of a program to call as
``python`` is. It stands in ``sys.executable`` of the forks too, so what a tool starts is forked as well. A fork is a
process of its own: it can be killed, and ends as Python does. It differs from a Python that was started in its parent,
its session, and in what is read when the interpreter starts (``PYTHON...``, ``OMP_NUM_THREADS``).
"""

import atexit
import contextlib
import functools
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import types
from collections.abc import Callable
from pathlib import Path

IMPORTED = (
    'torch', 'torch.distributed.launcher.api', 'timm', 'mmcv', 'matplotlib.pyplot', 'matplotlib.backends.backend_agg',
    'setuptools', 'yapf.yapflib.yapf_api', 'pandas', 'statsmodels.api', 'jinja2', 'rich.console',
    *(f'{package}.{part}' for package in ('mmpretrain', 'mmdet', 'mmseg')
      for part in ('datasets', 'evaluation', 'models', 'visualization')),
    'mmlape.lab.training.trainer', 'mmlape.lab.inference.evaluator', 'mmlape.lab.experiments.scheduler',
)  # fmt: skip
SHARED = 'FORKING_PYTHON'  # the variable with the program of the process that started this one
TITLE = 4000  # characters of a command line that the forks write over their server's


@functools.cache
def executable() -> str:
    """Return the Python to start tools with; with a GPU the interpreter itself, since CUDA does not survive a fork."""
    import torch

    if SHARED in os.environ:
        return os.environ[SHARED]
    if sys.platform != 'linux' or torch.cuda.is_available():
        return sys.executable
    folder = Path(tempfile.mkdtemp(prefix='forking-python-'))
    program = folder / 'python'
    client = Path(__file__).with_name('forking_client.py').read_text()
    program.write_text(f'#!{sys.executable} -IS\n{client}')
    program.chmod(0o755)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(folder / 'socket'))
        listening.listen(64)
        command = [sys.executable, __file__, str(listening.fileno()), str(folder), 'x' * TITLE]
        environment = {**os.environ, 'OMP_NUM_THREADS': '1'}
        server = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            pass_fds=[listening.fileno()],
            env=environment,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # which nohup has ignored
        )
    atexit.register(server.stdin.close)  # the server ends with its input
    return str(program)


class Server:
    """Forks a process for each connection, and sends its number and its exit status.

    Args:
        listening: Where calls come in; the server ends when its standard input does.
    """

    def __init__(self, listening: socket.socket) -> None:
        self.listening, self.calls = listening, {}
        self.events = selectors.DefaultSelector()
        self.ended = socket.socketpair()
        for end in self.ended:
            end.setblocking(False)
        signal.set_wakeup_fd(self.ended[1].fileno())
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for source in (sys.stdin.buffer, listening, self.ended[0]):
            self.events.register(source, selectors.EVENT_READ)

    def serve(self) -> tuple | None:
        """Serve calls until the tests end: None; in each fork: what it is to do."""
        while True:
            for key, _ in self.events.select():
                if key.fileobj is sys.stdin.buffer:
                    for fork in self.calls.values():
                        _kill(fork)
                    return None
                if key.fileobj is self.listening:
                    call = self._fork()
                    if call:
                        return call
                elif key.fileobj is self.ended[0]:
                    self._report()
                elif key.fileobj in self.calls:  # the client is gone: it was killed
                    _kill(self.calls[key.fileobj])
                    self._forget(key.fileobj)

    def _fork(self) -> tuple | None:
        import marshal

        client, _ = self.listening.accept()
        size, streams, *_ = socket.recv_fds(client, 8, 3)
        count = int.from_bytes(size, 'little')
        with client.makefile('rb') as file:
            call = file.read(count)
        if len(size) < 8 or len(call) < count:  # the client was killed
            client.close()
            return None
        call = marshal.loads(call)
        fork = os.fork()
        if not fork:
            os.setsid()
            self._leave(client)
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
                os.close(stream)
            return call
        for stream in streams:
            os.close(stream)
        self.calls[client] = fork
        self.events.register(client, selectors.EVENT_READ)
        _send(client, fork.to_bytes(8, 'little'))
        return None

    def _leave(self, client: socket.socket) -> None:
        """Close in a fork what belongs to the server."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self.events.close()
        for end in (self.listening, client, *self.ended, *self.calls):
            end.close()

    def _report(self) -> None:
        self.ended[0].recv(4096)
        while True:
            try:
                number, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not number:
                return
            client = next((client for client, fork in self.calls.items() if fork == number), None)
            if client:
                _send(client, os.waitstatus_to_exitcode(status).to_bytes(8, 'little', signed=True))
                self._forget(client)

    def _forget(self, client: socket.socket) -> None:
        del self.calls[client]
        self.events.unregister(client)
        client.close()


def _send(client: socket.socket, message: bytes) -> None:
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the client was killed in this moment
        client.sendall(message)


def _kill(fork: int) -> None:
    for kill in (os.kill, os.killpg):
        try:
            kill(fork, signal.SIGKILL)
        except ProcessLookupError:
            continue


def remember_code() -> None:
    """Hash what a run records of the package's code: a second of each run otherwise."""
    from mmlape.lab.extension import extensions
    from mmlape.lab.runs.code import COUNTED, source_hash

    counted = (*COUNTED, *(start for one in extensions() for start in one.counted))
    root = Path(__file__).resolve().parents[1]
    for file in (root / 'mmlape').rglob('*.py'):
        name = '.'.join(file.relative_to(root).with_suffix('').parts).removesuffix('.__init__')
        if f'{name}.'.startswith(tuple(f'{one}.' for one in counted)):
            source_hash(name)
    extensions.cache_clear()  # a test may add a package


def warm_up() -> None:
    """Do once what takes 0.15 s the first time: find fonts, read Python's grammar, ask for versions."""
    import io

    from matplotlib.figure import Figure
    from yapf.yapflib.yapf_api import FormatCode

    from mmlape.lab.runs.identity import stack_versions

    axes = (figure := Figure()).add_subplot(title='title', xlabel='x')
    axes.plot([0, 1], label='line')
    axes.legend()
    figure.savefig(io.BytesIO())
    FormatCode('a = [1]\n')
    stack_versions()


def become(
    words: list[str], unbuffered: bool, program: str, folder: str, environment: dict[str, str]
) -> tuple[str, str]:
    """Give a fork the state of a Python that was started so; return what it is to run: a module, a file or text."""
    import numpy

    os.chdir(folder)
    ours = os.environ.get('PYTHONPATH', '').split(os.pathsep)
    os.environ.clear()
    os.environ.update(environment)
    kind = words[0] if words[0] in ('-m', '-c') else ''
    what, sys.argv = (words[1], [kind, *words[2:]]) if kind else (words[0], words)
    first = {'-m': folder, '-c': ''}.get(kind, str(Path(what).resolve().parent))
    rest = [path for path in sys.path[1:] if path not in ours]
    sys.path[:] = [first, *filter(None, environment.get('PYTHONPATH', '').split(os.pathsep)), *rest]
    sys.path_importer_cache.clear()
    sys.executable = program
    sys.stdout.reconfigure(write_through=unbuffered)
    numpy.random.seed()
    if 'SEEN_LINES' in environment:
        _load('seen_lines').record_fork()
    _set_title(words)
    return kind, what


def _load(name: str) -> types.ModuleType:
    """Import a module that stands beside this one, whatever `sys.path` has."""
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location(name, Path(__file__).with_name(f'{name}.py'))
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _set_title(words: list[str]) -> None:
    """Have ``ps`` and ``/proc`` show the call."""
    import ctypes

    fields = Path('/proc/self/stat').read_text().rpartition(')')[2].split()
    start, end = map(int, fields[45:47])
    title = '\0'.join(['python', *words]).encode()[: end - start - 1]
    ctypes.memmove(start, title.ljust(end - start, b'\0'), end - start)


def execute(kind: str, what: str) -> None:
    """Run a module, a file or text as Python's main module."""
    import runpy

    if kind == '-m':
        runpy._run_module_as_main(what)
        return
    main = sys.modules['__main__'] = types.ModuleType('__main__')
    main.__builtins__ = __builtins__
    if not kind:
        main.__file__ = what
    text = what if kind else Path(what).read_text(encoding='utf-8')
    exec(compile(text, '<string>' if kind else what, 'exec'), main.__dict__)


def leave(run: Callable[[], None]) -> None:
    """Run what a fork is to do, and end as Python does without freeing the libraries' objects, each a copied page."""
    import contextlib
    import threading
    import traceback

    status = 0
    try:
        run()
    except SystemExit as stop:
        if isinstance(stop.code, str):
            print(stop.code, file=sys.stderr)
        status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except Exception:
        traceback.print_exc()
        status = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):  # nobody reads it any more
            stream.flush()
    os._exit(status & 0xFF)


if __name__ == '__main__':
    import gc
    import warnings
    import weakref
    from importlib import import_module

    gc.disable()
    with warnings.catch_warnings():  # whoever starts the server first would find them in what a tool printed
        warnings.simplefilter('ignore')
        for name in IMPORTED:
            import_module(name)
    remember_code()
    warm_up()
    assert len(os.listdir('/proc/self/task')) == 1, 'a thread would be missing in the forks'
    for finalizer in weakref.finalize._registry:  # the libraries' own: at the end of a fork they copy 8,000 pages
        finalizer.atexit = False
    gc.freeze()
    gc.enable()
    server = Server(socket.socket(fileno=int(sys.argv[1])))
    call = server.serve()
    if call:
        leave(lambda: execute(*become(*call)))
    else:
        shutil.rmtree(sys.argv[2], ignore_errors=True)  # it may be gone with the folder of all tests
        os._exit(0)  # without freeing the libraries' objects, of which some print that they leak

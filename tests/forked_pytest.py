"""Run pytest on copies of the package, in forks of one process that has imported the libraries but not the package."""

import compileall
import os
import shutil
import signal
import sys
import tempfile
import traceback
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ('mmlape', 'configs', 'studies', 'docs', 'tests', 'tools', 'examples', 'benchmarks', 'bootstrap')
FILES = ('pyproject.toml', 'setup.py', 'README.md', 'CONTRIBUTING.md', 'CHANGELOG.md', 'Makefile', 'model-index.yml')
IMPORTED = ('torch', 'timm', 'mmcv', 'mmengine', 'mmpretrain.models', 'mmseg.models', 'mmdet.models', 'pytest')
TIME_LIMIT = 1800  # seconds; a guard against tests that hang


class FirstFailure:
    """A pytest plugin that keeps the first failure."""

    text, in_collection = '', False

    def pytest_runtest_logreport(self, report):
        if report.failed and not self.text:
            crash = getattr(report.longrepr, 'reprcrash', None)
            message = (crash.message if crash else str(report.longrepr)).splitlines()
            self.text = f'{report.nodeid}: {message[0][:120] if message else ""}'

    def pytest_collectreport(self, report):
        self.pytest_runtest_logreport(report)
        self.in_collection |= report.failed


def import_libraries() -> None:
    """Import what forks then have at once."""
    os.environ['OMP_NUM_THREADS'] = '1'
    os.environ.setdefault('TMPDIR', tempfile.gettempdir())  # nothing to memory, as forks clean up nothing
    for name in IMPORTED:
        import_module(name)
    for name in ('mmlape', 'tests'):  # copies keep what is compiled, where a file has not changed
        compileall.compile_dir(ROOT / name, quiet=2)
    assert not any(name.partition('.')[0] == 'mmlape' for name in sys.modules), 'each fork imports its own copy'


def copy_package(temp: str) -> Path:
    """Copy the package, its configs and tests to a new folder in ``temp``."""
    folder = Path(tempfile.mkdtemp(dir=temp)).resolve()
    for name in FOLDERS:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns('*.pyc.*'))  # half-written
    for name in FILES:
        shutil.copy(ROOT / name, folder)
    return folder


def start(folder: Path, *args: str) -> int:
    """Start pytest on a copy in a fork, and return its process id."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    status = 3  # pytest's number for an internal error
    try:
        status = _run(folder, args)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _run(folder: Path, args: tuple[str, ...]) -> int:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(TIME_LIMIT)
    os.chdir(folder)
    output = os.open('output.txt', os.O_WRONLY | os.O_CREAT)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.dont_write_bytecode = True
    rest = [entry for entry in sys.path if Path(entry).resolve() not in (ROOT, ROOT / 'tests')]
    sys.path[:] = [str(folder), str(folder / 'tests'), *rest]
    os.environ['PYTHONPATH'] = str(folder)
    assert find_spec('mmlape').origin == str(folder / 'mmlape' / '__init__.py')
    first = FirstFailure()
    status = import_module('pytest').main(['-x', '-p', 'no:cacheprovider', *args], plugins=[first])
    Path('failure.txt').write_text(first.text)
    return 2 if first.in_collection else int(status)  # with -x pytest itself returns 1


def wait(folders: dict[int, Path]) -> tuple[int, int, str]:
    """Wait for one of the forks, and delete its copy.

    Returns:
        Its process id; pytest's status (1: a test failed, 2: tests could not be collected), or minus the signal that
        ended it; and the first failure.
    """
    child, status = os.wait()
    folder = folders.pop(child)
    failure = folder / 'failure.txt'
    text = failure.read_text() if failure.is_file() else (folder / 'output.txt').read_text()[-1000:]
    shutil.rmtree(folder)
    return child, os.waitstatus_to_exitcode(status), text

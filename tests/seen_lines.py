"""Which lines of the package each test runs, itself and in the forks of `forking_python`; a pytest plugin.

    pytest -p seen_lines --lines-to FILE      a JSON object: test -> its seconds, and its lines of each file as bits
    pytest -p seen_lines --chosen FILE        runs only the tests of a JSON list, in its order

It needs `sys.monitoring`, which Python has since 3.12.
"""

import atexit
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import pytest

FORKS = 'SEEN_LINES'  # the variable with the folder that forks write to
PACKAGE = f'{Path(__file__).resolve().parents[1] / "mmlape"}{os.sep}'
TOOL = 4  # one of the numbers that Python leaves to anybody


class Recorder:
    """The lines of the package that this process runs, from when each function of it is first called."""

    def __init__(self) -> None:
        self.seen = set()
        events = sys.monitoring.events
        sys.monitoring.use_tool_id(TOOL, 'seen_lines')
        sys.monitoring.register_callback(TOOL, events.LINE, self._line)
        sys.monitoring.register_callback(TOOL, events.PY_START, self._start)
        sys.monitoring.set_events(TOOL, events.PY_START)

    def _start(self, code, offset):
        if code.co_filename.startswith(PACKAGE):
            sys.monitoring.set_local_events(TOOL, code, sys.monitoring.events.LINE)
        return sys.monitoring.DISABLE

    def _line(self, code, number):
        self.seen.add((code.co_filename, number))

    def close(self) -> None:
        sys.monitoring.set_events(TOOL, 0)

    def bits(self) -> dict[str, int]:
        """Return for each file, as a path from the root, a number with the bit of each line that ran."""
        found = {}
        for file, number in list(self.seen):
            name = file.removeprefix(PACKAGE)
            found[name] = found.get(name, 0) | 1 << number
        return {f'mmlape/{name}': number for name, number in found.items()}


def record_fork() -> None:
    """Have a fork write its lines when it ends, where a test asks for them."""
    folder = os.environ.get(FORKS)
    if not folder:
        return
    recorder = Recorder()

    def write():
        recorder.close()
        if Path(folder).is_dir():
            Path(folder, f'{os.getpid()}.json').write_text(json.dumps(recorder.bits()))

    atexit.register(write)


def pytest_addoption(parser):
    parser.addoption('--lines-to', help='the file that gets the lines of each test')
    parser.addoption('--chosen', help='a file with the tests to run')


def pytest_configure(config):
    if config.getoption('lines_to'):
        config.pluginmanager.register(Lines(Path(config.getoption('lines_to'))))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    if config.getoption('chosen'):
        chosen = json.loads(Path(config.getoption('chosen')).read_text())
        place = {name: number for number, name in enumerate(chosen)}
        items[:] = sorted((item for item in items if item.nodeid in place), key=lambda item: place[item.nodeid])


class Lines:
    """Records the lines of each test that passes."""

    def __init__(self, file: Path) -> None:
        self.file, self.recorder, self.found, self.failed = file, Recorder(), {}, set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        with tempfile.TemporaryDirectory() as forks:
            os.environ[FORKS] = forks
            start = time.monotonic()
            self.recorder.seen.clear()
            result = yield
            lines = self.recorder.bits()
            del os.environ[FORKS]
            for file in Path(forks).glob('*.json'):
                for name, bits in json.loads(file.read_text() or '{}').items():
                    lines[name] = lines.get(name, 0) | bits
        lines = {name: f'{bits:x}' for name, bits in lines.items()}
        waiting = max(1.0, os.getloadavg()[0] / os.cpu_count())  # for each core; as if it had been alone
        self.found[item.nodeid] = {'seconds': (time.monotonic() - start) / waiting, 'lines': lines}
        return result

    def pytest_runtest_logreport(self, report):
        if report.outcome != 'passed':
            self.failed.add(report.nodeid)

    def pytest_sessionfinish(self):
        self.recorder.close()
        passed = {name: found for name, found in self.found.items() if name not in self.failed}
        self.file.write_text(json.dumps(passed))

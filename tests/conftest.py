"""Shared by all tests: one thread, a fixed seed, the models' small shapes, small mini data."""

import atexit
import contextlib
import fcntl
import gc
import json
import os
import shutil
import sys
import tempfile
import time
from datetime import date
from importlib import import_module
from pathlib import Path
from unittest import mock

os.environ.setdefault('OMP_NUM_THREADS', '1')

import config_helpers
import forking_python
import pytest
import torch
from mmengine.config import Config
from mmengine.logging import MMLogger

gc.disable()  # until all tests are collected
atexit.register(gc.unfreeze)
if not torch.cuda.is_available():
    os.environ.setdefault('CUDA_VISIBLE_DEVICES', '')  # nobody needs to ask for the GPUs

MEMORY = '/dev/shm'  # where a file costs a twentieth of what it does on a disk
if (
    'TMPDIR' not in os.environ
    and '--release' not in sys.argv  # which makes environments of 6 GB
    and os.path.isdir(MEMORY)
    and shutil.disk_usage(MEMORY).free > 10e9
    and not os.statvfs(MEMORY).f_flag & os.ST_NOEXEC
):
    # TMPDIR=/tmp make test: what a failed test has written stays there
    tempfile.tempdir = os.environ['TMPDIR'] = tempfile.mkdtemp(prefix='tests-', dir=MEMORY)

    def _empty_memory(folder, process):
        if os.getpid() == process:  # no fork of it
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(_empty_memory, tempfile.tempdir, os.getpid())


SLOW = Path(__file__).with_name('slow.txt')
TIME = Path(__file__).parents[1] / 'docs' / 'results' / 'test-time.json'


def pytest_addoption(parser):
    add = parser.addoption
    add(
        '--record', action='store_true', help='write the tests of three seconds to slow.txt, and the time for the docs'
    )
    add('--release', action='store_true', help='run what only a release needs, and nothing else')


def pytest_configure(config):
    if hasattr(config, 'workerinput'):
        sys.executable = config.workerinput['python']
        return
    config.pluginmanager.register(Times(config.getoption('record')))
    if config.getoption('numprocesses', None):  # they all use one server, and are its forks
        python = os.environ[forking_python.SHARED] = forking_python.executable()
        config.option.tx = [f'popen//python={python}'] * config.option.numprocesses
        os.environ['READ_CONFIGS'] = folder = tempfile.mkdtemp()  # see config_helpers.py
        atexit.register(shutil.rmtree, folder, ignore_errors=True)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node):
    node.workerinput['python'] = sys.executable


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session):
    """Import a share of the modules first: each of the parallel processes compiles its own, and reads the others'."""
    worker, tests = getattr(session.config, 'workerinput', None), Path(__file__).parent
    if worker is None or session.config.args != [tests.name]:
        return
    for path in sorted(tests.rglob('test_*.py'))[int(worker['workerid'][2:]) :: worker['workercount']]:
        sys.path.insert(0, str(path.parent))  # as pytest does
        with contextlib.suppress(Exception, pytest.skip.Exception):  # which pytest finds, too, and reports
            import_module(path.stem)


def pytest_collection_modifyitems(config, items):
    by_release = {True: [], False: []}
    for item in items:
        by_release[item.get_closest_marker('release') is not None].append(item)
    chosen = by_release[config.option.release]
    config.hook.pytest_deselected(items=by_release[not config.option.release])
    slow = set(SLOW.read_text().split())
    for item in chosen:
        if _function(item.nodeid) in slow:
            item.add_marker('slow')
    # the longest one first: nothing waits for it at the end
    items[:] = sorted(chosen, key=lambda item: 'test_demo' not in item.nodeid)


def _function(nodeid: str) -> str:
    return nodeid.partition('[')[0]


class Times:
    """Prints what the tests took, and writes `SLOW` and `TIME` where they are to be recorded.

    Slow is a function of which a case takes three seconds of a quiet machine, set-up included. Where more processes
    wait than there are cores, a second counts for less: what a test takes is divided by their number for each core.
    """

    def __init__(self, record: bool):
        self.record, self.start, self.seconds, self.load = record, time.monotonic(), {}, []

    def pytest_runtest_logreport(self, report):
        self.load.append(max(1.0, os.getloadavg()[0] / os.cpu_count()))
        seconds = report.duration / self.load[-1]
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0) + seconds

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter):
        if not self.seconds:
            return
        minutes, load = (time.monotonic() - self.start) / 60, sum(self.load) / len(self.load)
        cores = os.cpu_count()
        terminalreporter.write_line(
            f'{len(self.seconds)} tests in {minutes:.1f} min on {cores} cores with {load:.1f} processes each'
        )
        if self.record:
            slow = {_function(nodeid) for nodeid, seconds in self.seconds.items() if seconds > 3}
            SLOW.write_text(''.join(f'{name}\n' for name in sorted(slow)))
            found = dict(date=str(date.today()), tests=len(self.seconds), minutes=round(minutes, 1), cores=cores,
                         load=round(load, 1))  # fmt: skip
            TIME.write_text(json.dumps(found, indent=2) + '\n')


@pytest.fixture(autouse=True, scope='module')
def _frozen():
    """Half a million objects of the libraries stay: searching them for garbage takes half a second each time."""
    gc.enable()
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _loggers():
    """MMEngine's loggers write to what a test captured, which is closed behind it."""
    yield
    MMLogger._instance_dict.clear()


@pytest.fixture(autouse=True, scope='session')
def _configs_are_read_once():
    with mock.patch.object(Config, 'fromfile', config_helpers.fromfile):
        yield


@pytest.fixture(scope='session')
def once(tmp_path_factory):
    """``once(name, make)``: a folder, filled by ``make(folder)`` in the first process that asks and shared by all."""
    base = tmp_path_factory.getbasetemp()
    base = base.parent if 'PYTEST_XDIST_WORKER' in os.environ else base

    def once(name, make):
        folder = base / name
        with (base / f'{name}.lock').open('w') as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.exists():
                folder.mkdir()
                make(folder)
                (base / f'{name}.made').touch()
        assert (base / f'{name}.made').exists(), f'{name}: the first test that wanted it says what failed'
        return folder

    return once


@pytest.fixture(scope='session')
def tiny_arch():
    return dict(embed_dims=48, num_layers=4, num_heads=4, feedforward_channels=96)


@pytest.fixture(scope='session')
def pristine(tmp_path_factory):
    """Mini data of a few small images; not to be changed."""
    from mmlape.lab.datasets.mini.make import MiniOptions, make_mini_data

    root = tmp_path_factory.mktemp('data') / 'mini'
    make_mini_data(root, MiniOptions(train=6, val=3, digits=50, size=(64, 64), digit_size=(20, 30), per_scene=(3, 5)))
    return root


@pytest.fixture(scope='module')
def config(tmp_path_factory):
    """A tiny segmentor on data of its own, whose run makes the trouble that a test asks for."""
    import tiny
    import trouble

    folder = tmp_path_factory.mktemp('tiny')
    return tiny.write_config(folder, tiny.write_data(folder / 'data'), trouble.CONFIG)


@pytest.fixture
def mini(pristine, tmp_path):
    """A copy of the mini data, which a test may break."""
    return shutil.copytree(pristine, tmp_path / 'mini')

"""Shared by all tests: one thread, a fixed seed, the models' small shapes, small mini data."""

import fcntl
import gc
import os
import shutil
import sys
from pathlib import Path

os.environ.setdefault('OMP_NUM_THREADS', '1')

import forking_python
import pytest
import torch
from mmengine.logging import MMLogger

gc.disable()  # until all tests are collected
if not torch.cuda.is_available():
    os.environ.setdefault('CUDA_VISIBLE_DEVICES', '')  # nobody needs to ask for the GPUs

SLOW = Path(__file__).with_name('slow.txt')


def pytest_addoption(parser):
    parser.addoption('--record-slow', action='store_true', help='write the tests that take three seconds to slow.txt')


def pytest_configure(config):
    if hasattr(config, 'workerinput'):
        sys.executable = config.workerinput['python']
        return
    if config.getoption('record_slow'):
        config.pluginmanager.register(SlowTests())
    if config.getoption('numprocesses', None):  # they all use one server, and are its forks
        python = os.environ[forking_python.SHARED] = forking_python.executable()
        config.option.tx = [f'popen//python={python}'] * config.option.numprocesses


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node):
    node.workerinput['python'] = sys.executable


def pytest_collection_modifyitems(items):
    slow = set(SLOW.read_text().split())
    for item in items:
        if _function(item.nodeid) in slow:
            item.add_marker('slow')
    items.sort(
        key=lambda item: 'test_demo' not in item.nodeid
    )  # the longest one first: nothing waits for it at the end


def _function(nodeid: str) -> str:
    return nodeid.partition('[')[0]


class SlowTests:
    """Writes `SLOW`: the functions of which a case took three seconds, set-up included."""

    def __init__(self):
        self.seconds = {}

    def pytest_runtest_logreport(self, report):
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0) + report.duration

    def pytest_sessionfinish(self):
        slow = {_function(nodeid) for nodeid, seconds in self.seconds.items() if seconds > 3}
        SLOW.write_text(''.join(f'{name}\n' for name in sorted(slow)))


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
    from mmlape.datasets.mini.make import MiniOptions, make_mini_data

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

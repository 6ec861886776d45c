"""The closed world: what runs code, starts a process, calls out or writes does so without it, and never inside."""

import ctypes
import importlib
import os
import pickle
import shutil
import socket
import subprocess
import sys
import threading
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import mmengine
import numpy as np
import pytest
import torch
from checkpoint_helpers import SPY, Payload, enter, fired
from each import each
from mmengine.config import Config
from mmengine.dist.dist import _object_to_tensor, _tensor_to_object
from mmengine.fileio import get_file_backend
from mmengine.registry import MODELS as ROOT_MODELS
from mmengine.runner.checkpoint import CheckpointLoader
from mmengine.structures import InstanceData
from torch import nn
from torch.utils.data import DataLoader

from mmlape.checkpoint import opening
from mmlape.checkpoint.closed_world import ClosedError, allow_writing, as_now, as_parent, closed, open_forward, opened
from mmlape.errors import CheckpointError, DataError
from mmlape.files import write_json
from mmlape.lab.datasets.images import read_bytes
from mmlape.lab.runs.record import check_writable


def temporary() -> Path:
    path = Path('temporary/file')
    path.parent.mkdir(exist_ok=True)
    path.write_text('')
    return path


def in_thread(call):
    errors: list = []
    thread = threading.Thread(target=lambda: errors.append(ended_by(call)))
    thread.start()
    thread.join()
    if errors[0]:
        raise errors[0]


def connect():
    connection = socket.socket()
    connection.settimeout(0.1)
    connection.connect(('127.0.0.1', 9))


OPENERS = {
    'pickle.load': lambda: pickle.loads(Path('evil.pkl').read_bytes()),
    'torch.load': lambda: torch.load('evil.pth', weights_only=False),
    'numpy.load': lambda: np.load('evil.npy', allow_pickle=True),
    'mmengine.load': lambda: mmengine.load('evil.pkl'),
    'CheckpointLoader': lambda: CheckpointLoader.load_checkpoint('evil.pth'),
    'Config.fromfile': lambda: Config.fromfile('spy.py'),
    'custom_imports': lambda: Config.fromfile('imports.json'),
    'a registry': lambda: ROOT_MODELS.get('spy'),
    'import_module': lambda: importlib.import_module('spy'),
    'exec of a file': lambda: exec(compile(Path('spy.py').read_text(), 'spy.py', 'exec')),
    'eval': lambda: eval(SPY),
    'eval of a lambda': lambda: eval(f'(lambda: {SPY.strip()})()'),
    'eval of a module': lambda: eval("torch.os.mkdir('canary')", {'torch': torch}),
    'os.system': lambda: os.system('touch canary'),
    'subprocess': lambda: subprocess.run(['touch', 'canary'], check=True),
    'os.posix_spawn': lambda: os.waitpid(os.posix_spawn(shutil.which('touch'), ['touch', 'canary'], os.environ), 0),
    'open': lambda: open('canary', 'w').close(),
    'Path.touch': lambda: Path('canary').touch(),
    'a folder': lambda: os.mkdir('canary'),
    'a rename': lambda: os.rename('spare', 'canary'),
    'a link': lambda: os.symlink('spare', 'canary'),
    'a rename of a temporary file': lambda: os.rename(temporary(), 'canary'),
    'a hard link to one': lambda: os.link(temporary(), 'canary'),
    'a thread': lambda: in_thread(lambda: Path('canary').touch()),
    'a pool of threads': lambda: ThreadPoolExecutor(1).submit(os.mkdir, 'canary').result(),
}
REFUSED = {
    'a connection': connect,
    'urllib': lambda: urllib.request.urlopen('http://nobody.example'),
    'a library': lambda: ctypes.CDLL('./evil.so'),
    **{
        f'CheckpointLoader {name}': lambda name=name: CheckpointLoader.load_checkpoint(name)
        for name in ('http://a.example/a.pth', 'torchvision://resnet18', 'open-mmlab://vgg16_caffe')
    },
    'a store': lambda: get_file_backend('https://a.example/a').get('https://a.example/a'),
}
"""What has no effect here that could be seen."""


@pytest.fixture
def world(tmp_path, monkeypatch):
    enter(tmp_path, monkeypatch)
    evil = Payload()
    torch.save(evil, 'evil.pth')
    Path('evil.pkl').write_bytes(pickle.dumps(evil))
    np.save('evil.npy', np.array([evil], dtype=object), allow_pickle=True)
    Path('imports.json').write_text('{"custom_imports": {"imports": ["spy"]}}')
    yield
    sys.modules.pop('spy', None)


def ended_by(call) -> Exception | None:
    try:
        call()
    except Exception as error:
        return error
    return None


def test_each_opener_opens_without_and_is_refused_inside(world, monkeypatch):
    for name, call in each(OPENERS.items()):
        Path('spare').write_text('')
        ended_by(call)
        assert fired(), name
        Path('spare').write_text('')
        with closed():
            error = ended_by(call)
        assert not fired() and (error is not None or name == 'a registry'), (name, error)
        monkeypatch.setattr(opening, '_trusted', True)
        with closed():
            ended_by(call)
        assert fired(), name
        monkeypatch.setattr(opening, '_trusted', False)
    for name, call in each(REFUSED.items()):
        with closed():
            error = ended_by(call)
        guarded = 'not an address that is read' in str(error)  # by a run before, in this process
        assert isinstance(error, OSError | CheckpointError) and ('refused' in str(error) or guarded), (name, error)


def test_what_is_no_value_of_others_stays_possible(world):
    """Reading, plain pickles, imports of packages, processes that a block opens, and the files that are named."""
    model = nn.Identity()
    torch.save({'a': torch.ones(1)}, 'plain.pth')
    Path('environment').symlink_to(Path(torch.__file__).parents[1])
    with closed('named', Path('folder')):
        assert torch.load('plain.pth', weights_only=True)['a'] == 1
        assert pickle.loads(pickle.dumps({'a': [1]})) == {'a': [1]} and eval('torch.float32', {'torch': torch})
        assert eval('classes()', {'classes': tuple}) == ()
        arrays = {'data': np.arange(3), 'one': np.float32(1)}
        assert pickle.loads(pickle.dumps(arrays, protocol=2))['data'].tolist() == [0, 1, 2]
        sent, size = _object_to_tensor(InstanceData(a=torch.ones(1)))
        assert _tensor_to_object(sent, int(size)).a == 1
        exec(compile('', Path('environment/torch/__init__.py').absolute(), 'exec'))
        (temporary().parent / 'folder').mkdir()
        shutil.rmtree('temporary')
        Path('named').write_text('')
        Path('folder').mkdir()
        (Path('folder') / 'file').write_text('')
        allow_writing('new/one/file.json')
        write_json('new/one/file.json', {})
        check_writable(Path('new/one'))
        with pytest.raises(ClosedError, match=r'writing .*new/\.file'):
            write_json('new/file.json', {})
        with pytest.raises(ClosedError, match='writing .*other'):
            Path('folder/../other').write_text('')
        allow_writing('other', None)
        Path('other').write_text('')
        with opened():
            subprocess.run(['true'], check=True)
        model.forward = lambda value: subprocess.run(['true'], check=True)
        open_forward(model)
        model(0)
        with pytest.raises(ClosedError):
            os.system('true')
        later = as_now()
    Path('unnamed').write_text('')
    with later(), pytest.raises(ClosedError):
        Path('named').write_text('')


class Started:
    """A dataset whose sample says whether the world of its process is closed."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> str:
        return type(ended_by(lambda: subprocess.run(['true'], check=True))).__name__


def initialise(number: int) -> None:
    """Initialise nothing."""


@pytest.mark.parametrize('start', ['fork', 'spawn'])
def test_workers_are_closed_as_their_parent_is(start):
    with closed():
        loader = DataLoader(
            Started(), num_workers=1, worker_init_fn=as_parent(initialise), multiprocessing_context=start
        )
        assert next(iter(loader)) == ['ClosedError']
    assert as_parent(initialise) is initialise


def test_threads_of_a_user_are_not_closed_and_leave_the_world_as_it_was():
    """Blocks of two threads that begin and end in any order: a thread has a world of its own."""
    steps = {name: threading.Event() for name in ('opened', 'closed', 'left')}
    found = []

    def first():
        with closed(), opened():
            steps['opened'].set()
            steps['closed'].wait(60)
        steps['left'].set()

    def second():
        steps['opened'].wait(60)
        with closed():
            steps['closed'].set()
            steps['left'].wait(60)
            found.append(ended_by(lambda: os.system('true')))

    threads = [threading.Thread(target=one) for one in (first, second)]
    for thread in threads:
        thread.start()
    steps['closed'].wait(60)
    subprocess.run(['true'], check=True)
    for thread in threads:
        thread.join()
    subprocess.run(['true'], check=True)
    assert isinstance(found[0], ClosedError) and ROOT_MODELS.get('os.path') is os.path


def test_the_name_of_an_image_is_a_path():
    with pytest.raises(DataError, match=r'does not exist \(.*backend_args'):
        read_bytes('http://127.0.0.1:9/a.png')

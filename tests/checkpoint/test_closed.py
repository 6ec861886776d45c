"""The closed world: what runs code, starts a process, calls out or writes does so without it, and never inside."""

import ctypes
import importlib
import os
import pickle
import shutil
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import mmengine
import numpy as np
import pytest
import torch
from each import each
from mmengine.config import Config
from mmengine.fileio import get_file_backend
from mmengine.registry import MODELS as ROOT_MODELS
from mmengine.runner.checkpoint import CheckpointLoader
from torch import nn

from mmlape.errors import CheckpointError
from mmlape.weights import closed as closing
from mmlape.weights import reading
from mmlape.weights.closed import ClosedError, allow_writing, as_now, closed, open_forward, opened

SPY = "open('canary', 'w').close()\n"


class Evil:
    def __reduce__(self):
        return Path.touch, (Path('canary'),)


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
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(closing, '_temporary', lambda: str(tmp_path / 'temporary'))
    monkeypatch.setattr(CheckpointLoader, '_schemes', CheckpointLoader._schemes.copy())
    evil = Evil()
    torch.save(evil, 'evil.pth')
    Path('evil.pkl').write_bytes(pickle.dumps(evil))
    np.save('evil.npy', np.array([evil], dtype=object), allow_pickle=True)
    Path('spy.py').write_text(SPY)
    Path('imports.json').write_text('{"custom_imports": {"imports": ["spy"]}}')
    yield
    sys.modules.pop('spy', None)


def has_fired() -> bool:
    """Check for a file that should not be there, and remove it."""
    sys.modules.pop('spy', None)
    found = os.path.lexists('canary')
    if found:
        Path('canary').rmdir() if Path('canary').is_dir() else Path('canary').unlink()
    return found


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
        assert has_fired(), name
        Path('spare').write_text('')
        with closed():
            error = ended_by(call)
        assert not has_fired() and (error is not None or name == 'a registry'), (name, error)
        monkeypatch.setattr(reading, '_trusted', True)
        with closed():
            ended_by(call)
        assert has_fired(), name
        monkeypatch.setattr(reading, '_trusted', False)
    for name, call in each(REFUSED.items()):
        with closed():
            error = ended_by(call)
        assert isinstance(error, OSError | CheckpointError) and 'refused' in str(error), (name, error)


def test_what_is_no_value_of_others_stays_possible(world):
    """Reading, plain pickles, imports of packages, processes that a block opens, and the files that are named."""
    model = nn.Identity()
    torch.save({'a': torch.ones(1)}, 'plain.pth')
    with closed('named', Path('folder')):
        assert torch.load('plain.pth', weights_only=True)['a'] == 1
        assert pickle.loads(pickle.dumps({'a': [1]})) == {'a': [1]} and eval('torch.float32', {'torch': torch})
        assert eval('classes()', {'classes': tuple}) == ()
        Path('named').write_text('')
        Path('folder').mkdir()
        (Path('folder') / 'file').write_text('')
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

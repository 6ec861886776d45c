"""What the package keeps from one call to the next: whatever changes between them, the second is as with nothing kept.

Those in memory; caches in files are in `test_size_sweep`, `test_vtab` and `test_probe`.
"""

import json
import os

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from mmlape.lab import studies
from mmlape.lab.config.config_file import load_config
from mmlape.lab.datasets.formats import coco
from mmlape.models.grid import cached_tensor


def later(path, content, seconds):
    """Write a file that is as many seconds newer than the epoch."""
    path.write_bytes(content)
    os.utime(path, (seconds, seconds))
    return path


@pytest.mark.parametrize(('names', 'seconds'), [('cab', 2), ('abcd', 1), ('abcd', 0)], ids=['later', 'same', 'older'])
def test_classes_of_coco_files(tmp_path, names, seconds):
    """Other names at another time; more of them at any, as of an archive that is unpacked."""

    def content(names):
        found = dict(categories=[dict(id=number, name=name) for number, name in enumerate(names)], images=[])
        return json.dumps(found).encode()

    file = later(tmp_path / 'a.json', content('abc'), 1)
    source = coco.CocoSource.__new__(coco.CocoSource)
    source.ann_file = str(file)
    assert source.read_classes() == tuple('abc')
    later(file, content(names), seconds)
    assert source.read_classes() == tuple(names)
    file.unlink()
    assert source.read_classes() is None


def test_studies(tmp_path):
    """A value of the file, and a result that somebody has changed."""
    (tmp_path / 'base.py').write_text('model = dict(sizes=[1])\n')
    text = 'base: base.py\narms:\n  a: {overrides: {model.sizes: [5]}}\n'
    study = later(tmp_path / 'study.yml', text.encode(), 1)
    for wanted in ([5], [6]):
        arm = studies.read_arm(f'{study}:a')
        assert load_config(f'{study}:a').model.sizes == arm.overrides['model.sizes'] == wanted
        arm.overrides['model.sizes'].append(0)
        assert load_config(f'{study}:a').model.sizes == wanted
        later(study, text.replace('5', '6').encode(), 1)


def test_tensors():
    """A kept tensor is that of its arguments, an ordinary one, and the last ones are kept; recorded ones are not."""
    calls = []

    @cached_tensor(maxsize=2)
    def build(side, scale):
        calls.append((side, scale))
        return torch.arange(side) * scale

    with FakeTensorMode():
        build(3, 1)
    torch.func.vmap(lambda x: x + build(3, 1)[0])(torch.zeros(2))
    assert build.cache_info().currsize == 0 and len(calls) == 2
    calls.clear()
    for inference in (True, False):
        with torch.inference_mode(inference):
            for arguments in ((3, 1), (3, 2), (3, 1)):
                found = build(*arguments)
                assert found.tolist() == (torch.arange(arguments[0]) * arguments[1]).tolist()
                assert not found.is_inference()
    assert calls == [(3, 1), (3, 2)]

"""What the package keeps from one call to the next: whatever changes between them, the second is as with nothing kept.

Each cache in memory is found in the code, so that a new one without an entry here fails. Those in files are in
`test_size_sweep`, `test_vtab`, `test_captions` and `test_probe`.
"""

import ast
import copy
import io
import json
import os
import tarfile

import pytest
import torch
from config_helpers import ROOT
from mmengine.config import Config

from mmlape.lab.datasets.formats import coco
from mmlape.lab.engine.config import load_config
from mmlape.lab.studies import study_file
from mmlape.models.grid import cached_tensor
from mmlape.projects.lit import shards

OF_ARGUMENTS = 'follows from the arguments'
OF_PROCESS = 'of the code or the machine, which stay while a process lives'
CACHES = {
    'lab/analysis/drawing.py image_suffixes': OF_PROCESS,
    'lab/datasets/formats/coco_file.py listed_classes': 'test_classes_of_coco_files',
    'lab/engine/config.py load': 'test_configs_and_their_bases',
    'lab/engine/keys.py runner_keys': OF_PROCESS,
    'lab/engine/keys.py untyped_keys': OF_PROCESS,
    'lab/engine/keys.py runner_arguments': OF_PROCESS,
    'mim.py adapt_mmengine': OF_PROCESS,
    'lab/engine/plan.py identity': OF_ARGUMENTS,
    'new/listing.py documents': OF_ARGUMENTS,
    'new/listing.py images': OF_ARGUMENTS,
    'lab/studies/parsing.py _values': 'test_studies',
    'lab/experiments/sequential.py _levels': OF_ARGUMENTS,
    'lab/environment/packages.py locked': OF_PROCESS,
    'extension/metafiles.py read_metafiles': OF_PROCESS,
    'mmcv_ext.py _kernel': OF_PROCESS,
    'models/adapter/deform_attn.py _level_table': OF_ARGUMENTS,
    'models/adapter/deform_attn.py _load_backend': OF_PROCESS,
    'models/adapter/deform_attn.py _warn_once': OF_PROCESS,
    'models/grid.py keep': 'test_tensors',
    'models/position/absolute.py _anew': OF_ARGUMENTS,
    'models/position/beit.py _kept_spline': OF_ARGUMENTS,
    'models/position/beit.py pair_index': OF_ARGUMENTS,
    'models/position/irpe.py _of_grid': OF_ARGUMENTS,
    'models/position/lookhere.py _table': OF_ARGUMENTS,
    'models/position/relative_bias.py _flat_index': OF_ARGUMENTS,
    'models/position/rotary.py _axial_rotation': OF_ARGUMENTS,
    'models/swin/layers.py apart_in': OF_ARGUMENTS,
    'models/timm/pretrained.py skeleton': OF_ARGUMENTS,
    'models/timm/subclassing.py subclass': OF_ARGUMENTS,
    'projects/lit/shards.py _members': 'test_shards',
    'files.py _by_libyaml': OF_ARGUMENTS,
    'weights/gate.py _imported_by': OF_PROCESS,
    'projects/lit/tokenizer.py ids': OF_ARGUMENTS,
    'projects/mask2former.py _sides': OF_ARGUMENTS,
    'lab/extension.py extensions': OF_PROCESS,
    'lab/runs/code.py source_hash': OF_PROCESS,
    'lab/decoding.py stored_fields': OF_ARGUMENTS,
    'lab/runs/identity.py commit': OF_PROCESS,
    'lab/runs/identity.py stack_versions': OF_PROCESS,
}
"""The functions whose results are kept: the test of it, or why there is nothing to test."""
MAKERS = ('cache', 'lru_cache', 'cached_property', 'cached_tensor')


def maker(node):
    """Return the name of what a decorator is, such as 'lru_cache' of ``@functools.lru_cache(8)``."""
    node = node.func if isinstance(node, ast.Call) else node
    return getattr(node, 'attr', getattr(node, 'id', None))


def caches_of(file):
    """Yield the names of the functions of a file whose results are kept."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.FunctionDef) and any(maker(one) in MAKERS for one in node.decorator_list):
            yield node.name
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and maker(node.value) in MAKERS:
            yield maker(node.targets[0])


def test_every_cache_has_an_entry():
    package = ROOT / 'mmlape'
    found = {f'{file.relative_to(package)} {name}' for file in package.rglob('*.py') for name in caches_of(file)}
    assert found == {*CACHES}
    tests = {name for name in globals() if name.startswith('test_')}
    assert {entry for entry in CACHES.values() if entry.startswith('test_')} <= tests


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


def test_configs_and_their_bases(tmp_path):
    """A value of a file, of its base, and a result that somebody has changed; also of another package's base."""
    (tmp_path / 'base.py').write_text('a = dict(b=1)\n')
    child = tmp_path / 'child.py'
    child.write_text("_base_ = ['base.py', 'mmdet::_base_/models/mask-rcnn_r50_fpn.py']\nc = 1\n")
    first = Config.fromfile(child)
    before = copy.deepcopy(first.to_dict())
    first.model.backbone.depth = first.a.b = 2
    assert Config.fromfile(child).to_dict() == before
    (tmp_path / 'base.py').write_text('a = dict(b=3)\n')
    child.write_text(child.read_text().replace('c = 1', 'c = 4'))
    changed = Config.fromfile(child)
    assert (changed.a.b, changed.c, changed.model) == (3, 4, before['model'])


def test_studies(tmp_path):
    """A value of the file, and a result that somebody has changed."""
    (tmp_path / 'base.py').write_text('model = dict(sizes=[1])\n')
    text = 'base: base.py\narms:\n  a: {overrides: {model.sizes: [5]}}\n'
    study = later(tmp_path / 'study.yml', text.encode(), 1)
    for wanted in ([5], [6]):
        _, arm = study_file.read_arm(f'{study}:a')
        assert load_config(f'{study}:a').model.sizes == arm.overrides['model.sizes'] == wanted
        arm.overrides['model.sizes'].append(0)
        assert load_config(f'{study}:a').model.sizes == wanted
        later(study, text.replace('5', '6').encode(), 1)


@pytest.mark.parametrize('seconds', [2, 1], ids=['later', 'same time'])
def test_shards(tmp_path, seconds):
    """An archive that is written again has its members at other places."""

    def content(**files):
        file = io.BytesIO()
        with tarfile.open(fileobj=file, mode='w') as archive:
            for name, text in files.items():
                member = tarfile.TarInfo(name)
                member.size = len(text)
                archive.addfile(member, io.BytesIO(text))
        return file.getvalue()

    shard = later(tmp_path / 'a.tar', content(one=b'one', two=b'two'), 1)
    name = f'{shards.PREFIX}{shard}/two'
    assert shards.TarBackend().get(name) == b'two'
    later(shard, content(more=b'0' * 20000, two=b'another'), seconds)
    assert shards.TarBackend().get(name) == b'another'
    assert set(shards.members(str(shard))) == {'more', 'two'}


def test_tensors():
    """A kept tensor is that of its arguments, an ordinary one, and the last ones are kept."""
    calls = []

    @cached_tensor(maxsize=2)
    def build(side, scale):
        calls.append((side, scale))
        return torch.arange(side) * scale

    for inference in (True, False):
        with torch.inference_mode(inference):
            for arguments in ((3, 1), (3, 2), (3, 1)):
                found = build(*arguments)
                assert found.tolist() == (torch.arange(arguments[0]) * arguments[1]).tolist()
                assert not found.is_inference()
    assert calls == [(3, 1), (3, 2)]

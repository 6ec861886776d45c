"""Checkpoints: every layout loads exactly, whatever does not fit is refused by name, nothing in a file is run."""

import argparse
import contextlib
import gzip
import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp
from checkpoint_helpers import Payload, assert_same, save
from each import each
from mmengine.logging import HistoryBuffer
from mmengine.model import PretrainedInit
from model_helpers import vit
from torch import nn

from mmlape.checkpoint import load_backbone, opening, read_checkpoint
from mmlape.checkpoint.converting import convert
from mmlape.checkpoint.opening import state_dict_of
from mmlape.errors import CheckpointError, ConfigError


def test_default_and_lape_start_from_each_other_where_that_is_asked(tmp_path):
    default = save(tmp_path / 'a.pth', vit().state_dict())
    lape = save(tmp_path / 'b.pth', vit(pe_joining='lape').state_dict())
    assert len(load_backbone(vit(pe_joining='lape'), default, allow_joining_mismatch=True).new) == 4
    assert 'blocks.1.pe_norm.bias' in load_backbone(vit(), lape, allow_joining_mismatch=True).dropped
    part = {key: value for key, value in vit(pe_joining='lape').state_dict().items() if 'blocks.1.pe_norm' not in key}
    with pytest.raises(CheckpointError, match='missing.*pe_norm'):
        load_backbone(vit(pe_joining='lape'), save(tmp_path / 'part.pth', part), allow_joining_mismatch=True)


class Attribute:
    """Pickled as ``getattr(owner, name)``, which MMEngine's log histories need for their own statistics."""

    def __init__(self, owner, name):
        self.of = owner, name

    def __reduce__(self):
        return getattr, self.of


@pytest.mark.parametrize(
    ('owner', 'name', 'allowed'),
    [
        *((HistoryBuffer, name, True) for name in ('min', 'max', 'mean', 'current')),
        *((HistoryBuffer, name, False) for name in ('update', 'statistics', 'register_statistics', '__init__')),
        *((HistoryBuffer, name, False) for name in ('__globals__', '__class__', '__subclasses__', '__dict__')),
        *((owner, 'mean', False) for owner in (np.ndarray, argparse.Namespace)),
    ],
    ids=str,
)
def test_attributes_that_a_file_may_name(tmp_path, owner, name, allowed):
    torch.save({'model': {'x': torch.zeros(1)}, 'extra': Attribute(owner, name)}, tmp_path / 'a.pth')
    if allowed:
        assert read_checkpoint(tmp_path / 'a.pth')['extra'] is getattr(HistoryBuffer, name)
        return
    with pytest.raises(CheckpointError, match=rf'a\.pth: refused.* \(getattr of {name}\).*--trust-checkpoint'):
        read_checkpoint(tmp_path / 'a.pth')


def test_complete_files_of_others_say_what_they_are(tmp_path):
    """Scores of each of NumPy's types are read; classes that are refused are named; nothing complete is truncated."""
    state = vit().state_dict()
    for kind in each(np.sctypeDict.values()):
        if kind.__module__ == 'numpy' and not issubclass(kind, np.void | np.object_):
            score = np.ones(1, kind)[0]
            path = save(tmp_path / 'score.pth', {'state_dict': state, 'best': score})
            assert state_dict_of(read_checkpoint(path), path).keys() == state.keys()
    dcp.save({'model': state}, checkpoint_id=str(tmp_path / 'parts'), no_dist=True)
    torch.jit.script(nn.Linear(2, 2)).save(str(tmp_path / 'program.pt'))
    for name, content in {
        'object.pth': {'best': np.array([None])}, 'path.pth': {'args': Path('a')}, 'module.pth': nn.Linear(2, 2),
        'arrays.pth': {name: value.numpy() for name, value in state.items()},
    }.items():  # fmt: skip
        torch.save(content, tmp_path / name)
    (tmp_path / 'folder').mkdir()
    save(tmp_path / 'folder' / 'here.pth', state)
    for name, message in {
        'parts': 'dcp_to_torch', 'parts/.metadata': 'dcp_to_torch', 'parts/__0_0.distcp': 'dcp_to_torch',
        'program.pt': 'TorchScript', 'object.pth': r'ObjectDType\).*--trust', 'path.pth': r'pathlib\.\w+\).*--trust',
        'module.pth': r'linear\.Linear\).*--trust', 'arrays.pth': r'ndarray.*as_tensor', 'folder': r'in it: here\.pth',
    }.items():  # fmt: skip
        with pytest.raises(CheckpointError, match=message) as error:
            state_dict_of(read_checkpoint(tmp_path / name), name)
        assert 'truncated' not in str(error.value)


def test_damaged_files_get_one_line(tmp_path):
    good = save(tmp_path / 'good.pth', vit().state_dict())
    content = Path(good).read_bytes()
    cases = {
        'empty.pth': (b'', 'the file is empty'),
        'cut.pth': (content[: len(content) // 2], 'truncated or damaged|not a PyTorch file'),
        'text.pth': (b'hello', r"unknown kind of file \(b'hello'"),
        'page.pth': (b'\n<!DOCTYPE html>', r'a web page: download the file itself'),
        'packed.tar': (b'\0' * 257 + b'ustar' + b'\0' * 99, 'packed by tar: unpack it'),
        'packed.gz': (gzip.compress(b'a'), 'packed by gzip: unpack it'),
        'model_final.pkl': (pickle.dumps({'model': [1]}), "a pickle without PyTorch's header, .*torch.save"),
        'a.index.json': (b'{"weight_map": {"a": ""}}', 'no list of the parts'),
        'pointer.pth': (b'version https://git-lfs.github.com/spec/v1', 'a pointer of Git LFS'),
        'cut.safetensors': (b'\x10\0\0\0\0\0\0\0{', 'truncated or damaged'),
    }
    for name, (data, message) in cases.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(CheckpointError, match=message) as error:
            read_checkpoint(tmp_path / name)
        assert '\n' not in str(error.value) and name in str(error.value)
    with pytest.raises(CheckpointError, match='there is no such file'):
        read_checkpoint(tmp_path / 'missing.pth')
    torch.save([1, 2], tmp_path / 'list.pth')
    with pytest.raises(CheckpointError, match='holds a list'):
        read_checkpoint(tmp_path / 'list.pth')
    with pytest.raises(CheckpointError, match='no tensors in it'):
        load_backbone(vit(), save(tmp_path / 'numbers.pth', {'a': 1}))


def test_strictness_is_given_up_by_name_only(tmp_path):
    """Through ``init_cfg``, as a configuration says it; no match at all stays an error."""
    source = vit()
    tensors = source.state_dict()
    del tensors['blocks.1.norm1.bias']
    init = dict(type='Pretrained', checkpoint=save(tmp_path / 'a.pth', tensors))
    with pytest.raises(CheckpointError, match='missing: blocks.1.norm1.bias'):
        vit(init_cfg=init).init_weights()
    model = vit(init_cfg=dict(init, strict=False))
    model.init_weights()
    assert_same(model, source, ('blocks.1.norm1.bias',))
    other = {name: value[..., None] for name, value in tensors.items() if name not in ('cls_token', 'pos_embed')}
    init = dict(type='Pretrained', checkpoint=save(tmp_path / 'b.pth', other), strict=False)
    with pytest.raises(CheckpointError, match='does not fit the model:\n  wrong shape: '):
        vit(init_cfg=init).init_weights()


def test_mmengines_own_initialisation_reads_safely_as_well(tmp_path, monkeypatch):
    from mmengine.runner.checkpoint import CheckpointLoader

    monkeypatch.setattr(CheckpointLoader, '_schemes', CheckpointLoader._schemes.copy())
    payload = Payload(tmp_path / 'ran')
    torch.save({'state_dict': {'weight': torch.zeros(1)}, 'extra': payload}, tmp_path / 'a.pth')
    opening.guard_mmengine()
    for name, message in ((str(tmp_path / 'a.pth'), 'would run code'), ('open-mmlab://a', 'download it and name')):
        with pytest.raises(CheckpointError, match=message):
            CheckpointLoader.load_checkpoint(name)
    assert not (tmp_path / 'ran').exists()


def test_files_that_cannot_be_what_they_seem_are_refused_in_one_line(tmp_path):
    """Quantised values without their scales, another activation in the config.json beside a file."""
    file = dict(vit().state_dict())
    name = 'blocks.0.attn.proj.weight'
    quantised = {**file, name: file[name].to(torch.int8)}
    with pytest.raises(CheckpointError, match=f'wrong type: {name} is torch.int8, quantised values whose scales'):
        load_backbone(vit(), quantised)
    convert(save(tmp_path / 'a.pth', file, None), path := tmp_path / 'model.safetensors', 'transformers-vit')
    for config, refused in (({}, False), (dict(hidden_act='gelu'), False), (dict(hidden_act='quick_gelu'), True)):
        (tmp_path / 'config.json').write_text(json.dumps(dict(vision_config=config) if refused else config))
        with pytest.raises(CheckpointError, match="hidden_act='quick_gelu'") if refused else contextlib.nullcontext():
            load_backbone(vit(norm_cfg=dict(type='LN', eps=1e-12)), path)
    for size in ((8, 8), (8, 4)):
        with pytest.raises(ConfigError, match='patches are squares'):
            vit(patch_size=size)


@pytest.mark.parametrize('kind', ['Pretrained', 'mmengine.Pretrained', PretrainedInit])
def test_every_way_to_name_mmengines_initialisation_uses_our_loader(tmp_path, kind):
    """A default DeiT must not enter a LaPE model without a word."""
    path = save(tmp_path / 'a.pth', vit().state_dict())
    with pytest.raises(CheckpointError, match='was trained without LaPE'):
        vit(pe_joining='lape', init_cfg=dict(type=kind, checkpoint=path)).init_weights()

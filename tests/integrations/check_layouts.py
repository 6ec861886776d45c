"""transformers' own vision models against ours, both ways, all values random.

Run in an environment with transformers 5 by `tests/environment/test_integrations.py`. The golden data of the default
tests are of the same cases; `tests/golden/made.txt` says what wrote them.
"""

import re

import pytest
import torch
from transformers_cases import CASES, IMAGE, PATCH, SIDE, ours, theirs, tokens_of

import mmlape
from mmlape.checkpoint import read_checkpoint
from mmlape.checkpoint.converting import convert, inspect
from mmlape.checkpoint.metadata import KEY, metadata_of
from mmlape.models import TimmViT


def features(model):
    with torch.no_grad():
        out = model.double().eval()(IMAGE.double())
    return [part for one in out for part in (one if isinstance(one, tuple) else (one,))]


def same(model, expected, tolerance):
    found = features(model)
    assert len(found) == len(expected)
    for one, other in zip(found, expected):
        torch.testing.assert_close(one, other, rtol=0, atol=tolerance)


def files(model, folder):
    """Yield the model's values in every form of a file."""
    model.save_pretrained(folder / 'one')
    yield folder / 'one' / 'model.safetensors'
    model.save_pretrained(folder / 'shards', max_shard_size='8KB')
    assert len(list((folder / 'shards').glob('*.safetensors'))) > 1
    yield folder / 'shards' / 'model.safetensors.index.json'
    torch.save(read_checkpoint(folder / 'one' / 'model.safetensors'), folder / 'pytorch_model.bin')
    yield folder / 'pytorch_model.bin'
    torch.save(model.state_dict(), folder / 'newer.pth')
    yield folder / 'newer.pth'


@pytest.mark.parametrize('name', CASES)
def test_theirs_load_into_ours(name, tmp_path):
    case, model = CASES[name], theirs(name)
    expected = tokens_of(case, model.double().eval())
    model.float()
    for file in files(model, tmp_path):
        own = ours(name)
        report = mmlape.load_weights(own, file)
        assert all('(zeros)' in key for key in report.new) and len(report.loaded) == report.total, file
        same(own, expected, case.tolerance)
        assert report.layout == case.layout
        assert inspect(file)['layout'] == case.layout


@pytest.mark.parametrize('name', [name for name, case in CASES.items() if case.target])
def test_ours_are_written_for_theirs(name, tmp_path):
    case, own = CASES[name], ours(name)
    expected = features(own)
    own.float()
    torch.save(dict(state_dict=own.state_dict(), meta={KEY: metadata_of(own).plain()}), tmp_path / 'ours.pth')
    convert(tmp_path / 'ours.pth', tmp_path / 'model.safetensors', case.target)
    theirs(name).config.save_pretrained(tmp_path)
    model, info = type(theirs(name)).from_pretrained(tmp_path, output_loading_info=True)
    beside = re.compile(r'(.*\.)?(\w*classifier|pooler|head|decoder|visual_projection|mask_token)(\..*|$)')
    lost = [key for key in info['missing_keys'] if not beside.match(key)]
    assert not lost and not info['unexpected_keys'] and not info['mismatched_keys'], info
    found = tokens_of(case, model.double().eval())
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=case.tolerance)
    back = ours(name)
    mmlape.load_weights(back, tmp_path / 'model.safetensors')
    same(back, expected, case.tolerance)


IN_TIMM = {
    'vit': 'vit_tiny_patch16_224',
    'deit': 'deit_tiny_distilled_patch16_224',
    'dinov2': 'vit_small_patch14_dinov2',
    'dinov2 registers': 'vit_small_patch14_reg4_dinov2',
    'dinov3': 'vit_small_patch16_dinov3_qkvb',
    'clip': 'vit_base_patch16_clip_224',
    'siglip': 'vit_so400m_patch16_siglip_256',
}


@pytest.mark.parametrize('name', IN_TIMM)
def test_theirs_load_into_timms(name, tmp_path):
    case, model = CASES[name], theirs(name)
    model.save_pretrained(tmp_path)
    ratio = case.own['arch']['feedforward_channels'] / 16
    sizes = dict(embed_dim=16, depth=2, num_heads=2, mlp_ratio=ratio)
    registers = case.own.get('num_registers')
    more = {('num_reg_tokens' if 'dinov3' in name else 'reg_tokens'): registers} if registers else {}
    own = TimmViT(IN_TIMM[name], model_args={**sizes, **more}, img_size=SIDE, patch_size=PATCH, out_type='raw')
    report = mmlape.load_weights(own, tmp_path / 'model.safetensors')
    assert len(report.loaded) == report.total
    for module in own.modules():
        if isinstance(module, torch.nn.LayerNorm):
            module.eps = case.own['norm_cfg']['eps']
    same(own, tokens_of(case, model.double().eval()), max(case.tolerance, 1e-6))

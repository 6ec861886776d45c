"""ONNX graphs of backbones, in onnxruntime beside PyTorch; a graph that computes something else is not written."""

import shutil
from functools import partial

import onnx
import onnxruntime
import pytest
import torch
from checkpoint_helpers import save
from model_helpers import ARCH, cvt, randomise
from model_helpers import vit as raw_vit

from mmlape.backbones import build_backbone, export_backbone
from mmlape.errors import CheckpointError, ConfigError, ExportError
from mmlape.lab.config.config_file import load_config
from mmlape.lab.export import writing
from mmlape.lab.export.writing import Form
from mmlape.models import DistilledVisionTransformer, SwinTransformer, VisionTransformer, ViTAdapter
from mmlape.projects import CeiT, T2TViT

vit = partial(raw_vit, out_type='featmap')


def outputs(path, image):
    session = onnxruntime.InferenceSession(str(path), providers=['CPUExecutionProvider'])
    return [torch.from_numpy(value) for value in session.run(None, {'image': image.numpy()})]


VITS = {
    'windows': dict(
        pe_joining='lape', pe_type=['learnable', 'rpe'], patch_norm='dual', with_cls_token=False,
        window_attn=[True, False], window_size=3,
    ),
}  # fmt: skip
MORE_VITS = {
    'default': dict(),
    'unshared': dict(pe_joining='unshared', out_indices=(0, 1)),
    'distilled': dict(cls=DistilledVisionTransformer, pe_joining='lape', out_type='cls_token'),
    'shared': dict(pe_joining='shared', pe_type='sincos2d'),
    'lape-shared': dict(pe_joining='lape-shared', pe_type='sincos1d', patch_norm='rms'),
    'rpe': dict(pe_joining='lape', pe_type='rpe'),
    'cvt': dict(cls=cvt, pe_joining='lape', out_type='sequence_pool'),
    'mpvg': dict(pe_joining='mpvg', with_cls_token=False, out_type='avg_featmap'),
    'mpvg, cvt': dict(cls=cvt, pe_joining='mpvg', out_type='sequence_pool'),
}


@pytest.mark.parametrize('name', [*VITS, *(pytest.param(name, marks=pytest.mark.release) for name in MORE_VITS)])
def test_a_vit_of_each_joining_computes_the_same(tmp_path, name, monkeypatch):
    """At another size than its PE is made for, so that the resizing is in the graph."""
    options = {**VITS, **MORE_VITS}[name]
    model, size = vit(**options), (24, 40)
    form = Form(size)
    written = export_backbone(model, form, tmp_path / 'a.onnx')
    assert written.difference <= 1e-4
    image = torch.randn(1, 3, *size)
    expected = [leaf for out in model(image) for leaf in (out if isinstance(out, tuple) else (out,))]
    for ours, theirs in zip(expected, outputs(tmp_path / 'a.onnx', image), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=0)
    assert [file.name for file in tmp_path.iterdir()] == ['a.onnx']
    if name == 'windows':
        monkeypatch.setattr(writing, '_write', lambda model, form, path, notes: shutil.copy(tmp_path / 'a.onnx', path))
        _require_that_other_values_are_refused(model.train(), tmp_path / 'a.onnx', form)


def _require_that_other_values_are_refused(model, path, form):
    """Neither is the graph of before replaced, nor is anything of the model but a copy in evaluation mode."""
    before, bias = path.read_bytes(), model.blocks[1].pe_norm.bias
    for value, difference in ((bias[0].item() + 0.01, r'.* more than 0\.0001'), (float('nan'), 'inf')):
        torch.nn.init.constant_(bias[0], value)
        with pytest.raises(ExportError, match=f'differs from PyTorch by {difference}.*nothing is written'):
            export_backbone(model, form, path)
        assert path.read_bytes() == before and [*path.parent.iterdir()] == [path] and model.training


@pytest.mark.release
@pytest.mark.parametrize('joining', ['lape', 'mpvg'])
def test_swin_computes_the_same(joining, tmp_path):
    """Maps, windows and merging with padding, shifted windows, and a PE that is resized and merged."""
    arch = dict(embed_dims=12, depths=(2, 1), num_heads=(2, 4))
    options = dict(pe_type=['learnable', 'rpe'], pe_joining=joining, out_type='featmap', out_indices=(0, 1))
    model = randomise(SwinTransformer(arch, 32, window_size=4, **options))
    assert export_backbone(model, Form((44, 70)), tmp_path / 'a.onnx').difference <= 1e-4


@pytest.mark.release
@pytest.mark.parametrize('tokens', ['performer', 'transformer', 'ceit', 'ceit, mpvg', 'performer, mpvg'])
def test_t2t_vit_and_ceit_compute_the_same(tmp_path, tokens):
    tokens, _, pooled = tokens.partition(', ')
    joining = dict(pe_joining='mpvg', with_cls_token=False) if pooled else dict(pe_joining='lape')
    if tokens == 'ceit':
        joining |= dict(out_type='layer_pool') if pooled else {}
        model = CeiT(dict(ARCH, stem_channels=8), 32, **joining)
    else:
        arch = dict(ARCH, token_dims=8)
        model = T2TViT(arch, 32, out_type='featmap', tokens_type=tokens, patch_norm='dual', **joining)
    export_backbone(randomise(model), Form((40, 64)), tmp_path / 'a.onnx')
    image = torch.randn(1, 3, 40, 64)
    torch.testing.assert_close(model(image)[0], outputs(tmp_path / 'a.onnx', image)[0], atol=1e-4, rtol=0)


MASK_RCNN = dict(pe_joining='lape', patch_norm='dual', window_attn=[True, False], window_size=3)
ADAPTERS = {  # with their layers; one interaction has an injector and an extractor
    'one interaction': (2, dict(MASK_RCNN, interaction_indexes=[[0, 1]], use_extra_extractor=False)),
    'upernet': (4, dict(pe_joining='lape', vit_feature_source='interaction')),
    'mask-rcnn': (2, MASK_RCNN),
}


@pytest.mark.release
@pytest.mark.parametrize('name', ADAPTERS)
def test_a_vit_adapter_computes_the_same(tmp_path, name):
    layers, options = ADAPTERS[name]
    options = dict(interaction_indexes=[[i, i] for i in range(layers)]) | options
    model = ViTAdapter(dict(ARCH, num_layers=layers), 64, conv_inplane=8, deform_num_heads=3, **options)
    randomise(model)
    export_backbone(model, Form((64, 96)), tmp_path / 'a.onnx', notes={'mean': '[1, 2, 3]'})
    image = torch.randn(1, 3, 64, 96)
    found = outputs(tmp_path / 'a.onnx', image)
    assert [value.shape[2:] for value in found] == [(16, 24), (8, 12), (4, 6), (2, 3)]
    for ours, theirs in zip(model(image), found, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=0)
    graph = onnx.load(tmp_path / 'a.onnx')
    assert 'GridSample' not in {node.op_type for node in graph.graph.node}
    assert {entry.key: entry.value for entry in graph.metadata_props}['mean'] == '[1, 2, 3]'
    assert b'.py' not in (tmp_path / 'a.onnx').read_bytes(), 'files of this machine'


def test_weights_that_are_missing_are_not_exported(tmp_path):
    """A plain ViT's file starts an adapter, and is no trained one."""
    config = tmp_path / 'a.py'
    options = dict(type='mmlape.ViTAdapter', arch=ARCH, img_size=64, conv_inplane=8, deform_num_heads=3)
    config.write_text(
        f'default_scope = "mmseg"\nmodel = dict(backbone={options | dict(interaction_indexes=[[0, 0], [1, 1]])})'
    )
    path = save(tmp_path / 'vit.pth', VisionTransformer(ARCH, 64, 16).state_dict())
    with pytest.raises(
        CheckpointError, match=r'lacks \d+ tensors .* such as .*give the checkpoint of a trained model'
    ):
        build_backbone(load_config(str(config)), path)
    config.write_text('default_scope = "mmseg"\nmodel = dict(backbone=dict(type="ResNet", depth=18))')
    with pytest.raises(ConfigError, match='its backbone is ResNet, not one of mmlape'):
        build_backbone(load_config(str(config)), None)

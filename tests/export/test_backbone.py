"""ONNX graphs of backbones, in onnxruntime beside PyTorch; a graph that computes something else is not written."""

import shutil

import onnx
import onnxruntime
import pytest
import torch
from checkpoint_helpers import save
from model_helpers import ARCH, cvt, randomise, vit

from mmlape.backbones import build_backbone
from mmlape.errors import CheckpointError, ConfigError, ExportError
from mmlape.lab.config.config_file import load_config
from mmlape.lab.export import writing
from mmlape.lab.export.writing import Form, export_graph
from mmlape.models import DistilledVisionTransformer, SwinTransformer, VisionTransformer, ViTAdapter
from mmlape.projects import CeiT, T2TViT

MASK_RCNN = dict(pe_joining='lape', patch_norm='dual', window_attn=[True, False], window_size=3)


def plain(cls=VisionTransformer, **options):
    """A ViT, at another size than its PE is made for, so that the resizing is in the graph."""
    return vit(cls, **{'out_type': 'featmap', **options}), (24, 40)


def swin(joining):
    """Maps, windows and merging with padding, shifted windows, and a PE that is resized and merged."""
    arch = dict(embed_dims=12, depths=(2, 1), num_heads=(2, 4))
    options = dict(pe_type=['learnable', 'rpe'], pe_joining=joining, out_type='featmap', out_indices=(0, 1))
    return SwinTransformer(arch, 32, window_size=4, **options), (44, 70)


def ceit(**options):
    return CeiT(dict(ARCH, stem_channels=8), 32, **options), (40, 64)


def t2t(tokens, **options):
    arch = dict(ARCH, token_dims=8)
    return T2TViT(arch, 32, out_type='featmap', tokens_type=tokens, patch_norm='dual', **options), (40, 64)


def adapter(layers, **options):
    """With its layers; one interaction has an injector and an extractor."""
    options = dict(interaction_indexes=[[i, i] for i in range(layers)]) | options
    return ViTAdapter(dict(ARCH, num_layers=layers), 64, conv_inplane=8, deform_num_heads=3, **options), (64, 96)


POOLED = dict(pe_joining='mpvg', with_cls_token=False)
BACKBONES = {
    'windows': lambda: plain(
        pe_joining='lape', pe_type=['learnable', 'rpe'], patch_norm='dual', with_cls_token=False,
        window_attn=[True, False], window_size=3,
    ),
    'default': plain,
    'unshared': lambda: plain(pe_joining='unshared', out_indices=(0, 1)),
    'distilled': lambda: plain(DistilledVisionTransformer, pe_joining='lape', out_type='cls_token'),
    'shared': lambda: plain(pe_joining='shared', pe_type='sincos2d'),
    'lape-shared': lambda: plain(pe_joining='lape-shared', pe_type='sincos1d', patch_norm='rms'),
    'rpe': lambda: plain(pe_joining='lape', pe_type='rpe'),
    'cvt': lambda: plain(cvt, pe_joining='lape', out_type='sequence_pool'),
    'mpvg': lambda: plain(**POOLED, out_type='avg_featmap'),
    'mpvg, cvt': lambda: plain(cvt, pe_joining='mpvg', out_type='sequence_pool'),
    'swin': lambda: swin('lape'),
    'swin, mpvg': lambda: swin('mpvg'),
    't2t, performer': lambda: t2t('performer', pe_joining='lape'),
    't2t, transformer': lambda: t2t('transformer', pe_joining='lape'),
    't2t, mpvg': lambda: t2t('performer', **POOLED),
    'ceit': lambda: ceit(pe_joining='lape'),
    'ceit, mpvg': lambda: ceit(**POOLED, out_type='layer_pool'),
    'adapter': lambda: adapter(2, **dict(MASK_RCNN, interaction_indexes=[[0, 1]], use_extra_extractor=False)),
    'adapter, upernet': lambda: adapter(4, pe_joining='lape', vit_feature_source='interaction'),
    'adapter, mask-rcnn': lambda: adapter(2, **MASK_RCNN),
}  # fmt: skip
OF_RELEASE = [pytest.param(name, marks=pytest.mark.release) for name in BACKBONES if name != 'windows']


@pytest.mark.parametrize('name', ['windows', *OF_RELEASE])
def test_each_backbone_computes_the_same(tmp_path, name, monkeypatch):
    model, size = BACKBONES[name]()
    randomise(model)
    path, form = tmp_path / 'a.onnx', Form(size)
    assert export_graph(model.eval(), form, path, notes={'mean': '[1, 2, 3]'}) <= 1e-4
    image = torch.randn(1, 3, *size)
    session = onnxruntime.InferenceSession(str(path), providers=['CPUExecutionProvider'])
    expected = [leaf for out in model(image) for leaf in (out if isinstance(out, tuple) else (out,))]
    for ours, theirs in zip(expected, session.run(None, {'image': image.numpy()}), strict=True):
        torch.testing.assert_close(ours, torch.from_numpy(theirs), atol=1e-4, rtol=0)
    graph = onnx.load(path)
    assert 'GridSample' not in {node.op_type for node in graph.graph.node}
    assert {entry.key: entry.value for entry in graph.metadata_props}['mean'] == '[1, 2, 3]'
    assert b'.py' not in path.read_bytes(), 'files of this machine'
    assert [*tmp_path.iterdir()] == [path]
    if name == 'windows':
        monkeypatch.setattr(writing, '_write', lambda model, form, file, notes: shutil.copy(path, file))
        _require_that_other_values_are_refused(model, path, form)


def _require_that_other_values_are_refused(model, path, form):
    """The graph of before stays."""
    before, bias = path.read_bytes(), model.blocks[1].pe_norm.bias
    for value, difference in ((bias[0].item() + 0.01, r'.* more than 0\.0001'), (float('nan'), 'inf')):
        torch.nn.init.constant_(bias[0], value)
        with pytest.raises(ExportError, match=f'differs from PyTorch by {difference}.*nothing is written'):
            export_graph(model, form, path)
        assert path.read_bytes() == before and [*path.parent.iterdir()] == [path]


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

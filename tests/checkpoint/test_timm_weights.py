"""Weights of timm's ViTs: files of timm, of the authors and of our own, strictly; normalisation."""

import copy

import pytest
import timm
import torch
from checkpoint_helpers import dinov2_of_authors, dinov3_of_authors, run_file
from each import each
from golden_models import ADAPTER_TOLERANCE, assert_close, cases
from golden_models import build as build_golden
from golden_models import load as load_golden
from model_helpers import randomise
from torch import nn

import mmlape
from mmlape.checkpoint import load_backbone, read_checkpoint
from mmlape.checkpoint.converting import convert, inspect
from mmlape.errors import CheckpointError
from mmlape.models import TimmViT, TimmViTAdapter, ViTAdapter
from mmlape.models.timm.adapter import PATCH14
from mmlape.models.timm.joined import table_names

TINY = dict(embed_dim=48, depth=3, num_heads=4)
PARTS = dict(conv_inplane=4, deform_num_heads=4)


def build(name='vit_small_patch16_224', **kwargs):
    torch.manual_seed(0)
    return TimmViT(name, model_args=TINY, **kwargs)


def timm_model(name, **kwargs):
    return randomise(timm.create_model(name, **TINY, **kwargs))


def load(model, tensors, path, **options):
    torch.save(tensors, path)
    return load_backbone(model, str(path), **options)


def same(model, theirs, size=96):
    """Features are those of timm's own model with those weights."""
    images = torch.randn(1, 3, size, size)
    with torch.no_grad():
        options = dict(norm=True, intermediates_only=True, output_fmt='NCHW')
        theirs.set_input_size((size, size))
        expected = theirs.forward_intermediates(images, 1, **options)[0]
        torch.testing.assert_close(model.eval()(images)[0], expected, atol=1e-5, rtol=1e-5)


def test_tables_and_kernels_are_resized_by_timm(tmp_path):
    theirs = timm_model('vit_small_patch14_reg4_dinov2', num_classes=0)
    model = build('vit_small_patch14_reg4_dinov2', img_size=(64, 96), patch_size=16)
    report = load(model, theirs.state_dict(), tmp_path / 'a.pth')
    assert report.resized == {'vit.patch_embed.proj.weight': '14x14 -> 16x16', 'vit.pos_embed': '37x37 -> 4x6'}
    resampled = timm_model('vit_small_patch14_reg4_dinov2', num_classes=0)
    resampled.load_state_dict(theirs.state_dict())
    resampled.set_input_size((64, 96), (16, 16))
    torch.testing.assert_close(model.vit.pos_embed, resampled.pos_embed)
    torch.testing.assert_close(model.vit.patch_embed.proj.weight, resampled.patch_embed.proj.weight)


def test_biases_that_a_model_lacks_must_be_zero(tmp_path):
    theirs = timm_model('vit_small_patch16_dinov3_qkvb', num_classes=0)
    model = build('vit_small_patch16_dinov3')
    with pytest.raises(CheckpointError, match=r"qkv\.bias is not zero.*take timm's vit_small_patch16_dinov3_qkvb"):
        load(model, dinov3_of_authors(theirs.state_dict()), tmp_path / 'a.pth')
    for kept in ('q_bias', 'v_bias'):  # one of them alone is enough
        other = copy.deepcopy(theirs)
        for block in other.blocks:
            nn.init.zeros_(getattr(block.attn, 'v_bias' if kept == 'q_bias' else 'q_bias'))
        with pytest.raises(CheckpointError, match=r'qkv\.bias is not zero'):
            load(model, dinov3_of_authors(other.state_dict()), tmp_path / f'{kept}.pth')
    for block in theirs.blocks:
        nn.init.zeros_(block.attn.q_bias)
        nn.init.zeros_(block.attn.v_bias)
    report = load(model, dinov3_of_authors(theirs.state_dict()), tmp_path / 'b.pth')
    assert 'blocks.0.attn.qkv.bias' in report.dropped and not report.notes
    same(model, theirs, 64)


@pytest.mark.parametrize(
    ('name', 'rename'),
    [
        ('vit_small_patch16_224', dict),
        ('vit_small_patch14_reg4_dinov2', dict),
        ('vit_small_patch14_reg4_dinov2', dinov2_of_authors),
        ('vit_small_patch16_dinov3_qkvb', dict),
        ('vit_small_patch16_dinov3_qkvb', dinov3_of_authors),
    ],
)
def test_no_prefix_tokens(tmp_path, name, rename):
    theirs = timm_model(name, num_classes=0)
    report = load(model := build(name, with_prefix=False), rename(theirs.state_dict()), tmp_path / 'a.pth')
    assert 'cls_token' in report.dropped and len(report.loaded) == report.total
    if table_names(theirs):
        assert torch.equal(model.vit.pos_embed, theirs.pos_embed[:, -model.grid[0] * model.grid[1] :])
    for key, value in model.vit.named_parameters():
        assert key == 'pos_embed' or torch.equal(value, theirs.get_parameter(key)), key


def test_our_own_files(tmp_path):
    """A record names another architecture; timm reads what is written for it."""
    source = randomise(build('vit_small_patch16_224', img_size=(64, 96)))
    path = run_file(tmp_path / 'own.pth', source)
    other = build('vit_base_patch16_clip_quickgelu_224', img_size=(64, 96), final_norm=True)
    with pytest.raises(CheckpointError, match=r'missing: vit\.norm_pre'):
        load_backbone(other, path)
    report = load_backbone(build('vit_base_patch16_224', img_size=(64, 96)), path)
    assert report.layout == 'mmlape-timm' and "timm_model='vit_small_patch16_224'" in report.warnings[0]
    assert "type='mmlape.TimmViT', model_name='vit_small_patch16_224'" in inspect(path)['to load it']
    convert(path, tmp_path / 'timm.pth', 'timm')
    plain = timm.create_model('vit_small_patch16_224', **TINY, img_size=(64, 96), num_classes=0)
    plain.load_state_dict(read_checkpoint(tmp_path / 'timm.pth'), strict=True)


def test_an_adapters_files(tmp_path):
    """Over a file of the ViT its parts are new; in a file of its own nothing is; a mode is told by the keys."""
    vit = dict(model_name='vit_small_patch14_reg4_dinov2', model_args=TINY)
    options = dict(PARTS, patch14='resize-image', layers=(0, 1), vit_feature_source='last', deform_ratio=0.5)
    model = TimmViTAdapter(vit=dict(vit, frozen=True), mode='read-only', **options)
    theirs = timm_model('vit_small_patch14_reg4_dinov2', num_classes=0)
    report = load(model, dinov2_of_authors(theirs.state_dict()), tmp_path / 'vit.pth')
    assert report.new and not any(key.startswith('vit.') for key in report.new)
    assert [key for key in report.dropped if key.startswith('blocks.2.')], 'the layer behind the last one is left out'
    torch.save(model.state_dict(), tmp_path / 'own.pth')
    again = TimmViTAdapter(vit=vit, mode='read-only', **options)
    assert not load_backbone(again, str(tmp_path / 'own.pth')).new
    injecting = TimmViTAdapter(vit=vit, **options)
    with pytest.raises(CheckpointError, match=r'missing: .*injector'):
        load_backbone(injecting, str(tmp_path / 'own.pth'))
    found = inspect(run_file(tmp_path / 'run.pth', model))
    assert "mode='read-only'" in found['to load it'] and 'layers=[0, 1]' in found['to load it']


def test_patches_of_14_keep_the_grid_of_their_table(tmp_path):
    """Below an adapter, whatever becomes of the patches."""
    theirs = timm_model('vit_small_patch14_reg4_dinov2', num_classes=0)
    vit = dict(model_name='vit_small_patch14_reg4_dinov2', model_args=TINY)
    for patch14 in each(PATCH14):
        model = TimmViTAdapter(vit, patch14=patch14, layers=(0, 1, 2), **PARTS)
        report = load(model, theirs.state_dict(), tmp_path / 'a.pth')
        assert model.grid == (37, 37) and torch.equal(model.vit.pos_embed, theirs.pos_embed)
        assert list(report.resized) == ['vit.patch_embed.proj.weight'] * (patch14 == 'resample-kernel')


@pytest.mark.parametrize('prefix', ['', 'segmentation_model.0.'], ids=['adapter', 'segmentor'])
def test_dinov3s_own_adapter(tmp_path, prefix):
    """A file by the public names, alone or in a segmentor, is read whole and gives the public outputs."""
    case, data = cases('dinov3')['adapter'], load_golden('dinov3')
    source = build_golden('dinov3', case, torch.float32)
    theirs = {f'backbone.{key}': value for key, value in dinov3_of_authors(source.vit.state_dict()).items()}
    own = {key: value for key, value in source.state_dict().items() if not key.startswith('vit.')}
    theirs = {prefix + key: value for key, value in {**theirs, **own}.items()}
    assert set(theirs) == {prefix + name for name in data['adapter/public_names']}
    path = tmp_path / 'meta.pth'
    model = TimmViTAdapter(**case['kwargs']).eval()
    report = load(model, theirs | ({'segmentation_model.1.x': torch.ones(2)} if prefix else {}), path)
    assert report.layout == 'dinov3-adapter' and len(report.loaded) == report.total and not report.new
    assert ('segmentation_model.1.x' in report.dropped) == bool(prefix)
    golden = [data[f'adapter/wide/float64/{i}'] for i in range(4)]
    for ours, expected in zip(model.double()(torch.from_numpy(data['inputs/wide']).double()), golden, strict=True):
        assert_close(ours, torch.from_numpy(expected), ADAPTER_TOLERANCE[torch.float64], 'output')
    assert 'no model of mmlape.TimmViTAdapter that has a name' in inspect(path)['to load it']
    convert(path, tmp_path / 'ours.pth', 'mmlape')
    again = load_backbone(other := TimmViTAdapter(**case['kwargs']), str(tmp_path / 'ours.pth'))
    assert len(again.loaded) == again.total
    assert all(torch.equal(a, b) for a, b in zip(other.float().parameters(), model.float().parameters(), strict=True))
    parts = {key: value for key, value in theirs.items() if '.blocks.' not in key and 'backbone.' not in key}
    with pytest.raises(
        CheckpointError, match=r"adapter without its ViT, which cannot be loaded: .*'backbone\.' in front"
    ):
        load(model, parts, tmp_path / 'parts.pth')


def test_what_is_dropped_and_new_is_an_error(tmp_path):
    """The adapter's parts stand where no layout looks for them, so that they would keep their initial values."""
    arch = dict(embed_dims=24, num_layers=2, num_heads=3, feedforward_channels=48)
    model = ViTAdapter(
        arch, 32, interaction_indexes=[[0, 0], [1, 1]], pe_type='none', **dict(PARTS, deform_num_heads=3)
    )
    vit = ('blocks.', 'patch_embed.')
    tensors = {f'backbone.{k}' if k.startswith(vit) else k: v for k, v in model.state_dict().items()}
    with pytest.raises(CheckpointError, match=r'dropped and new: level_embed, spm\.stem.*but not where such files do'):
        load(model, tensors, tmp_path / 'a.pth')


@pytest.mark.parametrize(
    ('name', 'mean'),
    [
        ('vit_small_patch14_reg4_dinov2', 123.675),
        ('vit_base_patch16_224', None),  # the name without a tag: AugReg's weights or MAE's
        ('vit_base_patch16_224.mae', 123.675),
        ('vit_base_patch16_224.augreg_in21k', 127.5),
    ],
)
def test_normalisation_of_the_pretrained_cfg(name, mean):
    found = build(name).source.normalisation
    assert (found.mean[0] if found else None) == mean


@pytest.mark.parametrize('joining', ['lape', 'unshared'])
def test_pretrained_weights_in_a_changed_model(tmp_path, joining):
    """They are refused unless the user asks for it; then the new parameters start as those of `add_lape`."""
    theirs = timm_model('vit_small_patch16_224', num_classes=0)
    model = build(img_size=96, pe_joining=joining)
    with pytest.raises(CheckpointError, match='allow_joining_mismatch=True in init_cfg'):
        load(model, theirs.state_dict(), tmp_path / 'a.pth')
    report = load(model, theirs.state_dict(), tmp_path / 'a.pth', allow_joining_mismatch=True)
    assert all('.pe_norm.' in name for name in report.new) and bool(report.new) == (joining == 'lape')
    theirs.set_input_size((96, 96))
    mmlape.add_lape(theirs, joining)
    images = torch.randn(1, 3, 96, 96)
    with torch.no_grad():
        expected = theirs.forward_intermediates(images, 1, norm=True, intermediates_only=True)[0]
        torch.testing.assert_close(model.eval()(images)[0], expected, atol=1e-5, rtol=1e-5)
    if joining == 'lape':
        torch.save(theirs.state_dict(), path := str(tmp_path / 'b.pth'))
        with pytest.raises(CheckpointError, match="trained with LaPE, but the model has pe_joining='default'"):
            load_backbone(build(img_size=96), path)

"""Tables, kernels and rows of tokens that a model takes otherwise than a file has them; `mmlape.resize_pos_embed`."""

import re

import pytest
import timm
import torch
import torch.nn.functional as F
from checkpoint_helpers import assert_same, renamed, run_file, save
from model_helpers import ARCH, SWIN_BOTH, new_token_vit, randomise, shallow_adapter, swin, vit
from torch import Tensor, nn

import mmlape
from mmlape.checkpoint import load_backbone, read_checkpoint, state_dict_of
from mmlape.checkpoint.converting import convert, inspect
from mmlape.checkpoint.metadata import KEY, metadata_of
from mmlape.errors import CheckpointError, ConfigError
from mmlape.models import DistilledVisionTransformer, VisionTransformer, ViTAdapter
from mmlape.models.position.base import resize_absolute
from mmlape.models.position.beit import resize_offsets
from mmlape.models.position.relative_bias import INDEX, TABLE
from mmlape.projects import CeiT, T2TViT

SIDE = 64
BEIT = dict(pe_type='beit', qkv_bias='qv', layer_scale_init_value=1e-6)


# rows of tokens


def test_resized_sinusoids_are_loaded_if_a_record_names_their_kind(tmp_path):
    """A record is JSON: the tuple of an argument is a list in it."""
    pe_type = ['sincos2d', dict(type='cpe', after=(0, 1))]
    model = vit(pe_type=pe_type)
    for number, resized in enumerate(({'pos_embed': '4x4 -> 6x6'}, {})):
        path = save(tmp_path / f'{number}.pth', model.state_dict(), meta={KEY: metadata_of(model).plain()})
        source, model = model, vit(img_size=48, pe_type=pe_type)
        assert load_backbone(model, path).resized == resized
    assert_same(model, source)


def test_a_distillation_token_is_told_from_a_class_token_by_name(tmp_path):
    source = vit(DistilledVisionTransformer)
    path = save(tmp_path / 'a.pth', source.state_dict())
    model = vit()
    report = load_backbone(model, path)
    assert torch.equal(model.pos_embed, source.pos_embed[:, [0, *range(2, 18)]])
    assert {'dist_token', 'pos_embed[dist_token]'} <= set(report.dropped)


@pytest.mark.parametrize(
    ('cls', 'tokens'),
    [
        (VisionTransformer, {'cls_token': 1}),
        (VisionTransformer, {'cls_token': 1, 'reg_token': 2}),
        (DistilledVisionTransformer, {'cls_token': 1, 'dist_token': 1}),
    ],
)
def test_a_row_that_a_file_lacks_is_zero(tmp_path, cls, tokens):
    """As where DeiT III's table, of patches only, is added: the outputs stay."""
    source = vit(cls, num_registers=tokens.get('reg_token', 0), with_prefix_pe=False)
    path = save(tmp_path / 'a.pth', source.state_dict())
    report = load_backbone(model := vit(cls, num_registers=tokens.get('reg_token', 0)), path)
    assert report.new == [f'pos_embed[{name}] (zeros)' for name in tokens] and not report.dropped
    count = sum(tokens.values())
    assert model.pos_embed.shape[1] == count + 16 and not model.pos_embed[:, :count].any()
    assert torch.equal(model.pos_embed[:, count:], source.pos_embed)
    image = torch.randn(1, 3, 32, 32)
    torch.testing.assert_close(model(image), source(image))
    bare = vit(with_cls_token=False)
    assert load_backbone(bare, path).dropped == list(tokens) and torch.equal(bare.pos_embed, source.pos_embed)


@pytest.mark.parametrize('class_row', [True, False])
def test_an_adapter_keeps_a_class_row_for_no_token(tmp_path, class_row):
    """Zeros where the file has none, which are no news, since no token has them."""
    source = randomise(VisionTransformer(ARCH, 64, with_prefix_pe=class_row))
    report = load_backbone(
        model := shallow_adapter(layer_scale_init_value=0), save(tmp_path / 'a.pth', source.state_dict())
    )
    expected = source.pos_embed if class_row else torch.nn.functional.pad(source.pos_embed, (0, 0, 1, 0))
    assert torch.equal(model.pos_embed, expected)
    assert not any('pos_embed' in name for name in [*report.new, *report.dropped])


def test_the_public_one_dimensional_table_has_no_batch_axis(tmp_path):
    tensors = vit(pe_type='sincos1d').state_dict()
    tensors['pos_embed'] = tensors['pos_embed'][0]
    model = vit(pe_type='sincos1d')
    load_backbone(model, save(tmp_path / 'a.pth', tensors))
    assert torch.equal(model.pos_embed[0], tensors['pos_embed'])
    with pytest.raises(CheckpointError, match="pos_embed is not the table of pe_type='sincos2d'"):
        load_backbone(vit(pe_type='sincos2d'), save(tmp_path / 'b.pth', tensors))


# BEiT and DINOv2


def over(base=None, **options) -> nn.Module:
    layers = dict(interaction_indexes=[[0, 0], [1, 1]], conv_inplane=2, deform_num_heads=3, init_values=1e-6)
    return randomise(ViTAdapter(ARCH, **(base or {}) | layers | dict(img_size=SIDE) | options))


def of_layer(model: nn.Module, layer: int = 0) -> Tensor:
    return getattr(model.blocks[layer].attn, TABLE)


def test_tables_under_an_adapter(tmp_path):
    """With a class token they are resized with its entries apart; in windows they are cut, each resized to its own."""
    source = vit(img_size=SIDE, patch_size=16, final_norm=False, **BEIT)
    path = save(tmp_path / 'beit.pth', renamed(source.state_dict(), (r'\.gamma([12])$', r'.gamma_\1')))
    windows = dict(window_attn=True, window_size=[4, 6], window_padding='before-qkv')
    whole, windowed = over(BEIT, img_size=96, with_cls_token=True), over(BEIT, **windows)
    resized = resize_offsets(of_layer(source)[:49], (4, 4), (6, 6))
    report = load_backbone(whole, path)
    assert torch.equal(of_layer(whole), torch.cat((resized, of_layer(source)[49:])))
    assert report.resized[f'blocks.0.attn.{TABLE}'] == '4x4 -> 6x6'
    report = load_backbone(windowed, path)
    assert torch.equal(of_layer(windowed, 0), of_layer(source, 0)[:49])
    assert torch.equal(of_layer(windowed, 1), resize_offsets(of_layer(source, 1)[:49], (4, 4), (6, 6)))
    assert 'cls_token' in report.dropped and all(re.match('level|spm|inter|up|norm', name) for name in report.new)


def test_dinov2s_patches_become_those_of_16_pixels(tmp_path):
    """The table of 4 x 4 is then of an image of 64 pixels, not of 56."""
    source = vit(img_size=56, patch_size=14, layer_scale_init_value=1.0, final_norm=False)
    tensors = renamed(source.state_dict(), (r'gamma([12])$', r'ls\1.gamma')) | {'mask_token': torch.zeros(1, 24)}
    report = load_backbone(model := over(), save(tmp_path / 'a.pth', tensors, None))
    kernel = F.interpolate(source.patch_embed.proj.weight, (16, 16), mode='bilinear')
    assert torch.equal(model.patch_embed.proj.weight, kernel)
    assert_same(model, source, ('patch_embed.proj.weight',))
    assert report.resized == {'patch_embed.proj.weight': '14x14 -> 16x16'} and 'mask_token' in report.dropped


# Swin, T2T-ViT and CeiT


def test_an_index_that_a_file_lacks_or_has_wrong_is_the_models_own(tmp_path):
    tensors = swin().state_dict()
    path = save(tmp_path / 'a.pth', {k: v.flip(0) if k.endswith(INDEX) else v for k, v in tensors.items()})
    load_backbone(model := swin(), path)
    assert_same(model, swin(), [name for name in tensors if not name.endswith(INDEX)])
    lacking = save(tmp_path / 'b.pth', {k: v for k, v in tensors.items() if not k.endswith(INDEX)})
    assert not load_backbone(swin(), lacking).new


@pytest.mark.parametrize('hierarchy', ['merge', 'stage'])
def test_tables_are_resized_to_other_windows_and_images(tmp_path, hierarchy):
    """Windows are as large as tables say, whatever grid is given or recorded of the images."""
    options = dict(pe_type=SWIN_BOTH, pe_hierarchy=hierarchy)
    source = swin(**options, img_size=(32, 64))
    path = save(tmp_path / 'a.pth', dict(source.state_dict()))  # without the grid that a state dict brings
    with pytest.raises(CheckpointError, match=r'no square grid.* say which by grid=\(rows, columns\)'):
        load_backbone(swin(**options), path)
    report = load_backbone(model := swin(**options, window_size=3, img_size=64), path, grid=(8, 16))
    assert torch.equal(model.absolute_pos_embed, resize_absolute(source.absolute_pos_embed, (8, 16), (16, 16), 0))
    assert report.resized['layers.0.blocks.0.attn.' + TABLE] == '4x4 -> 3x3'
    names = ['absolute_pos_embed', *(['absolute_pos_embed1'] if hierarchy == 'stage' else [])]
    assert [report.resized[name] for name in names] == ['8x16 -> 16x16', '4x8 -> 8x8'][: len(names)]
    plain = swin(**options, window_size=3, img_size=64)
    plain.load_state_dict(source.state_dict())  # which records the grid
    assert_same(plain, model)


def test_tables_of_another_hierarchy_are_refused(tmp_path):
    path = save(tmp_path / 'a.pth', swin(pe_type='learnable', pe_hierarchy='stage').state_dict())
    with pytest.raises(CheckpointError, match="that of the file is 'stage', the model has 'merge'"):
        load_backbone(swin(pe_type='learnable'), path)


def test_a_feature_map_drops_class_attention_and_says_so(tmp_path):
    source = randomise(new_token_vit(CeiT))
    report = load_backbone(
        target := new_token_vit(CeiT, out_type='featmap'), save(tmp_path / 'a.pth', source.state_dict())
    )
    assert_same(target, source)
    assert {name.partition('.')[0] for name in report.dropped} == {'lca', 'pos_layer_embed'}
    with pytest.raises(CheckpointError, match='missing: lca'):
        load_backbone(new_token_vit(CeiT), save(tmp_path / 'b.pth', target.state_dict()))


def test_sinusoids_are_resized_and_their_class_row_kept(tmp_path):
    source = randomise(new_token_vit(T2TViT))
    model = new_token_vit(T2TViT, (64, 32))
    report = load_backbone(model, save(tmp_path / 'a.pth.tar', dict(source.state_dict()), 'state_dict_ema'))
    assert report.resized == {'pos_embed': '3x3 -> 4x2'}
    assert torch.equal(model.pos_embed, resize_absolute(source.pos_embed, (3, 3), (4, 2), 1))


def test_sinusoids_that_were_resized_are_loaded_as_they_are(tmp_path):
    """As the public code resizes them for other images: a refusal with the fix, which is what inspect prints."""
    source = randomise(new_token_vit(T2TViT, 80, pe_joining='lape'))
    small_table = new_token_vit(T2TViT, pe_joining='lape').pos_embed
    patches = F.interpolate(small_table[:, 1:].mT.unflatten(2, (3, 3)), (5, 5), mode='bicubic').flatten(2).mT
    source.pos_embed.copy_(torch.cat((small_table[:, :1], patches), dim=1))
    path = save(tmp_path / 'a.pth.tar', dict(source.state_dict()))
    fix = r"pos_embed is not the table of pe_type='sincos1d' on a grid of 5x5.*pe_type='learnable' takes it as it is"
    with pytest.raises(CheckpointError, match=fix):
        load_backbone(new_token_vit(T2TViT, 80, pe_joining='lape'), path)
    target = new_token_vit(T2TViT, 80, pe_joining='lape', pe_type='learnable')
    load_backbone(target, path)
    image = torch.randn(1, 3, 80, 80)
    assert torch.equal(target.eval()(image)[0], source(image)[0])
    own = run_file(tmp_path / 'b.pth', source)
    load_backbone(target := new_token_vit(T2TViT, 80, pe_joining='lape'), own)
    assert_same(target, source)
    assert inspect(own)['pe_type'] == 'sincos1d'


# in a state dict


LAYOUTS = {
    'mmlape': dict(pe_joining='unshared'),
    'classifier': {},
    'timm': {},
    'lape': dict(pe_joining='lape'),
    'transformers-clip': dict(patch_norm='post-posemb', norm_cfg=dict(type='LN', eps=1e-5)),
}


def written(folder, layout: str) -> tuple[str, dict]:
    """A file of a layout, and the arguments of the model that it is of."""
    options = dict(LAYOUTS[layout], arch=ARCH, img_size=32, patch_size=8)
    model = randomise(mmlape.VisionTransformer(**options))
    if layout == 'transformers-clip':
        torch.nn.init.zeros_(model.patch_embed.proj.bias)  # its stem has none
    source, target = save(folder / 'ours.pth', model.state_dict(), 'state_dict'), folder / 'theirs.pth'
    convert(source, target, layout)
    return str(target), options


@pytest.mark.parametrize('layout', LAYOUTS)
def test_a_resized_file_loads_as_the_loader_would_have_resized_it(layout, tmp_path):
    file, options = written(tmp_path, layout)
    content = read_checkpoint(file)
    stored = state_dict_of(content, file)
    for grid in ((3, 7), (6, 6)):
        out = mmlape.resize_pos_embed(content, grid)
        options['img_size'] = tuple(side * 8 for side in grid)
        ours, loaders = (mmlape.VisionTransformer(**options) for _ in range(2))
        mmlape.load_weights(ours, save(tmp_path / 'resized.pth', out), grid=grid)
        mmlape.load_weights(loaders, file)
        torch.testing.assert_close(ours.state_dict(), loaders.state_dict(), rtol=0, atol=0)
        changed = {key for key in stored if out[key] is not stored[key]}
        assert changed and {stored[key].ndim for key in changed} == {out[key].ndim for key in changed}
        back = mmlape.resize_pos_embed(out, grid, source=grid)
        assert all(torch.equal(back[key], out[key]) for key in out)


def test_wrong_input_is_one_line():
    stored = dict(vit().state_dict())
    rectangle = mmlape.resize_pos_embed(stored, (3, 6))
    for grid, more, message in (
        (0, {}, r'grid=0 is no grid: give \(rows, columns\)'),
        ((4, 4, 4), {}, 'is no grid'),
        (7.0, {}, 'is no grid'),
        ((3, 4), dict(mode='linear'), "unknown mode='linear'; choose one of: bilinear, bicubic"),
        ((3, 4), dict(source='4x4'), "source='4x4' is no grid"),
    ):
        with pytest.raises(ConfigError, match=message):
            mmlape.resize_pos_embed(stored, grid, **more)
    biased = vit(pe_type=['learnable', 'rpe'], pe_joining='lape').state_dict()
    bare = timm.create_model('vit_small_patch16_dinov3', embed_dim=48, depth=1, num_heads=4).state_dict()
    for given, more, message in (
        (dict(rectangle), {}, r'has 19 rows, of 18 \(no square grid\) patches .*: say which by source=\('),
        (dict(stored, pos_embed=torch.zeros(1, 16, 24)), {}, 'beside cls_token or 4x4 patches beside no'),
        (stored, dict(source=(3, 5)), 'pos_embed has 16 or 17 patch rows, which is not the grid 3x5'),
        (biased, {}, r'inside attention \(rpe\), .* mmlape.load_weights resizes all of the file'),
        (bare, {}, 'has no table of an absolute PE to resize'),
        ({'fc.weight': torch.zeros(2, 2)}, {}, 'matches no known layout'),
        ({}, {}, 'no tensors in it'),
    ):
        with pytest.raises(CheckpointError, match=message) as error:
            mmlape.resize_pos_embed(given, (4, 6), **more)
        assert len(str(error.value).splitlines()) == 1

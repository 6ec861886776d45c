"""Files of BEiT, Uni-Perceiver, AugReg and DINOv2 in the layouts of their authors, under the adapter and without."""

import re

import pytest
import torch
import torch.nn.functional as F
from checkpoint_helpers import assert_same, save
from model_helpers import ARCH, randomise
from torch import Tensor, nn

from mmlape.checkpoint import load_backbone
from mmlape.checkpoint.converting import convert
from mmlape.checkpoint.inspecting import inspect
from mmlape.checkpoint.key_maps import recognise_backbone
from mmlape.checkpoint.metadata import KEY, metadata_of
from mmlape.errors import CheckpointError
from mmlape.models import VisionTransformer, ViTAdapter, ViTPyramid
from mmlape.models.position.beit import resize_offsets
from mmlape.models.position.relative_bias import INDEX, TABLE
from mmlape.models.vit.bases import UNI_PERCEIVER
from mmlape.registry import MODELS

SIDE = 64
LAST = dict(out_type='raw', final_norm=False)
BIAS = dict(pe_type='beit', qkv_bias='qv', layer_scale_init_value=1e-6)


def beit(**kwargs) -> nn.Module:
    return randomise(VisionTransformer(ARCH, SIDE, 16, **BIAS | LAST | kwargs))


def over_beit(**kwargs) -> nn.Module:
    layers = dict(interaction_indexes=[[0, 0], [1, 1]], conv_inplane=2, deform_num_heads=3, init_values=1e-6)
    return randomise(ViTAdapter(ARCH, **BIAS | layers | dict(img_size=SIDE) | kwargs))


def windows(*sizes: int) -> dict:
    return dict(window_attn=True, window_size=list(sizes), window_padding='before-qkv')


def renamed(tensors: dict[str, Tensor], *names: tuple[str, str]) -> dict[str, Tensor]:
    out = {}
    for name, value in tensors.items():
        for old, new in names:
            name = re.sub(old, new, name)
        out[name] = value
    return out


def as_unilm(model: nn.Module, side: int = 4) -> dict[str, Tensor]:
    """Name our tensors as BEiT's authors do; each layer of theirs has an index."""
    tensors = renamed(model.state_dict(), (r'\.gamma([12])$', r'.gamma_\1'))
    count = side * side + model.num_prefix
    return tensors | {f'blocks.{i}.attn.{INDEX}': torch.zeros(count, count).long() for i in range(model.num_layers)}


def table(model: nn.Module, layer: int = 0) -> Tensor:
    return getattr(model.blocks[layer].attn, TABLE)


HEADS = {'fc_norm.weight': torch.ones(24), 'head.weight': torch.ones(5, 24), 'head.bias': torch.ones(5)}
TEXT = {'fused_encoder.token_embed.weight': torch.ones(7, 24), 'loss_prepare.bias': torch.ones(3)}


def test_beits_files(tmp_path):
    source, model = beit(), beit()
    path = save(tmp_path / 'beit.pth', as_unilm(source) | HEADS)
    report = load_backbone(model, path)
    assert_same(model, source)
    assert report.layout == 'beit' and not report.new and not report.resized
    assert set(report.dropped) == {*HEADS, *(f'blocks.{i}.attn.{INDEX}' for i in range(2))}


def test_a_pretrainings_shared_table_fills_every_layer(tmp_path):
    source, model = beit(), beit(final_norm=True)
    tensors = {name: value for name, value in as_unilm(source).items() if TABLE not in name and INDEX not in name}
    shared = {f'rel_pos_bias.{TABLE}': table(source, 1).data, f'rel_pos_bias.{INDEX}': torch.zeros(17, 17).long()}
    others = {'mask_token': torch.zeros(1, 1, 24), 'lm_head.weight': torch.zeros(9, 24), 'norm.weight': torch.ones(24)}
    report = load_backbone(model, save(tmp_path / 'a.pth', tensors | shared | others | {'norm.bias': torch.ones(24)}))
    assert torch.equal(table(model, 0), table(source, 1)) and torch.equal(table(model, 1), table(source, 1))
    assert {'mask_token', 'lm_head.weight', f'rel_pos_bias.{INDEX}'} <= set(report.dropped)


def test_tables_under_an_adapter(tmp_path):
    """With a class token they are resized with its entries apart; in windows they are cut, each resized to its own."""
    source = beit()
    path = save(tmp_path / 'beit.pth', as_unilm(source) | HEADS)
    whole, windowed = over_beit(img_size=96, with_cls_token=True), over_beit(**windows(4, 6))
    resized = resize_offsets(table(source)[:49], (4, 4), (6, 6))
    report = load_backbone(whole, path)
    assert torch.equal(table(whole), torch.cat((resized, table(source)[49:])))
    assert report.resized[f'blocks.0.attn.{TABLE}'] == '4x4 -> 6x6'
    report = load_backbone(windowed, path)
    assert torch.equal(table(windowed, 0), table(source, 0)[:49])
    assert torch.equal(table(windowed, 1), resize_offsets(table(source, 1)[:49], (4, 4), (6, 6)))
    assert 'cls_token' in report.dropped and all(re.match('level|spm|inter|up|norm', name) for name in report.new)


@pytest.mark.parametrize('options', [dict(with_cls_token=True), windows(4, 3)], ids=['segmentation', 'detection'])
def test_released_adapters_over_beit(tmp_path, options):
    source, model = over_beit(**options), over_beit(**options)
    tensors = {f'backbone.{name}': value for name, value in as_unilm(source).items()}
    path = save(tmp_path / 'a.pth', {**tensors, 'decode_head.bias': torch.ones(3)}, 'state_dict', meta={})
    report = load_backbone(model, path)
    assert_same(model, source)
    assert report.layout == 'beit-adapter' and not report.new and 'decode_head.bias' in report.dropped
    rows = inspect(path)
    assert 'no model of mmlape.ViTAdapter that has a name' in rows['to load it']


def test_lape_beside_the_bias_starts_from_beit(tmp_path):
    path = save(tmp_path / 'beit.pth', as_unilm(beit()))
    model = over_beit(with_cls_token=True, pe_type=['learnable', 'beit'], pe_joining='lape')
    with pytest.raises(CheckpointError, match='trained without LaPE'):
        load_backbone(model, path)
    report = load_backbone(model, path, allow_joining_mismatch=True)
    assert 'pos_embed' in report.new and 'blocks.0.pe_norm.weight' in report.new


def test_own_files_tell_all(tmp_path):
    options = dict(pe_type=['learnable', 'beit'], pe_joining='lape', **windows(4, 3))
    source = over_beit(**options)
    path = save(tmp_path / 'a.pth', source.state_dict(), 'state_dict', meta={KEY: metadata_of(source).plain()})
    kind, weights = recognise_backbone(torch.load(path), path)
    _, config, _ = kind.checkpoint_adapter.describe(kind, weights, path)
    assert kind is ViTAdapter and config['pe_type'] == ['learnable', 'beit'] and config['pe_joining'] == 'lape'
    assert config['window_padding'] == 'before-qkv' and config['qkv_bias'] == 'qv'
    model = MODELS.build(config)
    model.init_weights()
    assert_same(model, source)


# Uni-Perceiver

UNI = dict(UNI_PERCEIVER, interaction_indexes=[[0, 0], [1, 1]], conv_inplane=2, deform_num_heads=3)
TO_UNI = (
    (r'^blocks\.', 'layers.'),
    (r'attn\.qkv', 'self_attn.in_proj'),
    (r'attn\.proj', 'self_attn.out_proj'),
    (r'mlp\.fc', 'linear'),
    (r'gamma([12])$', r'gamma_\1'),
    (r'^norm_pre', 'visual_embed.embeddings_norm'),
    (r'^patch_embed\.', 'visual_embed.patch_embed.'),
)
TO_PRETRAINED = (
    (r'^', 'fused_encoder.'),
    (r'in_proj\.', 'in_proj_'),
    (r'^fused_encoder\.visual_embed\.', 'video_embed.'),
    (r'patch_embed\.proj', 'embeddings'),
    (r'patch_embed\.(?=spatial|temporal)', 'embeddings_st_pos.'),
)


def as_uni_perceiver(model: nn.Module) -> dict[str, Tensor]:
    """Name our tensors as the public code does; the PE is split into places and times."""
    tensors = renamed(model.state_dict(), *TO_UNI)
    times = torch.randn(8, 24)
    parts = {'spatial': tensors.pop('pos_embed')[0] - times[0], 'temporal': times}
    return tensors | {f'visual_embed.patch_embed.{name}_pos_embed.weight': part for name, part in parts.items()}


ADAPTER_PARTS = ('spm.', 'interactions.', 'up.', 'norm1.', 'norm2.', 'norm3.', 'norm4.', 'level_embed')


@pytest.mark.parametrize('kind', ['pretrained', 'converted', 'released'])
def test_uni_perceivers_files(tmp_path, kind):
    """The pretrained file, what the public converter makes of it, and a released detector's backbone."""
    source, model = (randomise(ViTAdapter(ARCH, SIDE, **UNI)) for _ in range(2))
    tensors = as_uni_perceiver(source)
    if kind != 'released':
        tensors = {name: value for name, value in tensors.items() if not name.startswith(ADAPTER_PARTS)}
        tensors['visual_embed.embeddings_type.weight'] = torch.randn(1, 24)
    if kind == 'pretrained':
        tensors = renamed(tensors, *TO_PRETRAINED) | TEXT
    path = save(tmp_path / 'a.pth', tensors, {'pretrained': 'model', 'converted': None}.get(kind, 'state_dict'))
    report = load_backbone(model, path)
    torch.testing.assert_close(model.pos_embed, source.pos_embed)
    assert_same(model.blocks, source.blocks)
    assert torch.equal(model.norm_pre.weight, source.norm_pre.weight)
    assert 'temporal_pos_embed.weight[1:]' in report.dropped and bool(report.new) == (kind != 'released')
    assert kind != 'pretrained' or 'token_embed.weight' in report.dropped
    assert kind == 'released' or any(name.endswith('embeddings_type.weight') for name in report.dropped)

    convert(path, tmp_path / 'ours.pth', 'mmlape')
    again = randomise(ViTAdapter(ARCH, SIDE, **UNI))
    load_backbone(again, tmp_path / 'ours.pth')
    assert_same(again.blocks, source.blocks)
    torch.testing.assert_close(again.pos_embed, source.pos_embed)


# the plain bases


def test_augregs_table_of_384_pixels_is_kept_or_resized(tmp_path):
    source = randomise(VisionTransformer(ARCH, 96, 16, **LAST))
    path = save(tmp_path / 'a.pth', source.state_dict(), None)
    adapter = dict(interaction_indexes=[[0, 0], [1, 1]], conv_inplane=2, deform_num_heads=3)
    model = ViTAdapter(ARCH, 96, **adapter)
    assert not load_backbone(model, path).resized and torch.equal(model.pos_embed, source.pos_embed)
    assert load_backbone(ViTAdapter(ARCH, 64, **adapter), path).resized == {'pos_embed': '6x6 -> 4x4'}


def test_dinov2s_patches_become_those_of_16_pixels(tmp_path):
    """The table of 4 x 4 is then of an image of 64 pixels, not of 56."""
    source = randomise(VisionTransformer(ARCH, 56, 14, layer_scale_init_value=1.0, **LAST))
    tensors = renamed(source.state_dict(), (r'gamma([12])$', r'ls\1.gamma')) | {'mask_token': torch.zeros(1, 24)}
    path = save(tmp_path / 'a.pth', tensors, None)
    model = ViTAdapter(ARCH, SIDE, interaction_indexes=[[0, 0], [1, 1]], conv_inplane=2, deform_num_heads=3)
    report = load_backbone(model, path)
    kernel = F.interpolate(source.patch_embed.proj.weight, (16, 16), mode='bilinear')
    assert torch.equal(model.patch_embed.proj.weight, kernel)
    assert_same(model, source, ('patch_embed.proj.weight',))
    assert report.resized == {'patch_embed.proj.weight': '14x14 -> 16x16'} and 'mask_token' in report.dropped


def test_dinov2s_adapter_with_a_norm_of_the_stem_is_not_clips(tmp_path):
    """Its stem has no bias, either, but its norms have an eps of 1e-6."""
    options = dict(interaction_indexes=[[0, 0], [1, 1]], conv_inplane=2, deform_num_heads=3, deform_ratio=0.5)
    source = randomise(ViTAdapter(ARCH, 56, patch_size=14, patch_norm='post-posemb', ffn_type='swiglu', **options))
    tensors = {name: value for name, value in source.state_dict().items() if name != 'patch_embed.proj.bias'}
    found = inspect(save(tmp_path / 'a.pth', tensors, 'state_dict'))
    assert 'norm_pre' in found['norms'] and 'CLIP' not in found['notes']


def test_baselines(tmp_path):
    """Names of BEiT's pyramid are others; a plain ViT leaves the pyramid new."""
    arch = dict(embed_dims=32, num_layers=2, num_heads=2, feedforward_channels=32)
    options = BIAS | dict(
        with_cls_token=True, norm_maps=False, up_norm_cfg=dict(type='SyncBN'), out_indices=[0, 0, 1, 1]
    )
    source, model = (randomise(ViTPyramid(arch, SIDE, **options)) for _ in range(2))
    tensors = renamed(as_unilm(source), (r'^up1\.', 'fpn1.'), (r'^up2\.', 'fpn2.0.'))
    load_backbone(model, save(tmp_path / 'beit.pth', tensors, 'state_dict'))
    assert_same(model, source)

    plain = randomise(ViTPyramid(arch, SIDE, out_indices=1))
    path = save(tmp_path / 'vit.pth', plain.state_dict(), 'state_dict')
    load_backbone(model := ViTPyramid(arch, SIDE, out_indices=1), path)
    assert_same(model, plain)
    assert recognise_backbone(torch.load(path))[0] is ViTPyramid
    vit = randomise(VisionTransformer(arch, SIDE, 16, layer_scale_init_value=1.0, **LAST))
    report = load_backbone(ViTPyramid(arch, SIDE, out_indices=1), save(tmp_path / 'a.pth', vit.state_dict()))
    assert {name.split('.')[0] for name in report.new} == {'norm1', 'norm2', 'norm3', 'norm4', 'up1', 'up2'}


@pytest.mark.parametrize(
    'model, source, message',
    [
        (lambda: VisionTransformer(ARCH, SIDE), beit, "is of BEiT, which has qkv_bias='qv' and pe_type='beit'"),
        (beit, lambda: randomise(VisionTransformer(ARCH, SIDE)), "qkv_bias='qv' is BEiT's, but the file is"),
        (lambda: over_beit(with_cls_token=True), lambda: over_beit(**windows(4, 4)), 'missing: cls_token'),
        (
            lambda: over_beit(**windows(4, 4) | dict(window_padding='after-qkv')),
            lambda: over_beit(**windows(4, 4)),
            "window_padding='before-qkv'",
        ),
    ],
)
def test_files_of_another_base(tmp_path, model, source, message):
    path = save(tmp_path / 'a.pth', as_unilm(source()))
    with pytest.raises(CheckpointError, match=re.escape(message)):
        load_backbone(model(), path)


def test_uni_perceiver_into_a_plain_adapter(tmp_path):
    path = save(tmp_path / 'a.pth', as_uni_perceiver(randomise(ViTAdapter(ARCH, SIDE, **UNI))))
    options = dict(interaction_indexes=[[0, 0], [1, 1]], conv_inplane=2, deform_num_heads=3)
    with pytest.raises(CheckpointError, match="the file is of Uni-Perceiver, which has patch_norm='post-posemb'"):
        load_backbone(ViTAdapter(ARCH, SIDE, **options), path)
    with pytest.raises(CheckpointError, match='eps=1e-5'):
        load_backbone(ViTAdapter(ARCH, SIDE, **UNI | dict(norm_cfg=dict(type='LN', eps=1e-6))), path)


def test_beit_is_not_taken_for_a_model_of_timm(tmp_path):
    path = save(tmp_path / 'a.pth', as_unilm(beit()) | HEADS)
    assert recognise_backbone(torch.load(path))[0] is VisionTransformer
    convert(path, tmp_path / 'ours.pth', 'mmlape')
    with pytest.raises(CheckpointError, match=r'no place for blocks\.\*\.attn\.q_bias'):
        convert(path, tmp_path / 'timm.pth', 'timm')

"""One contract of every layout: what a public file holds is read, described and written as its table here says.

The names of each layout are written a second time, by hand, from ours to the public ones. Files of transformers are in
``test_transformers_layouts.py``, those of timm's own models in ``test_timm_weights.py``.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
import torch
from checkpoint_helpers import assert_same, built_of, renamed, save, to_flax
from each import each
from model_helpers import ARCH, SWIN_BOTH, cvt, new_token_vit, randomise, shallow_adapter, swin, vit
from torch import Tensor, nn

from mmlape.checkpoint import load_backbone, read_checkpoint, state_dict_of
from mmlape.checkpoint.converting import convert, inspect
from mmlape.checkpoint.key_maps import recognise_backbone
from mmlape.checkpoint.metadata import KEY, metadata_of
from mmlape.checkpoint.opening import open_file
from mmlape.errors import CheckpointError
from mmlape.models import DistilledVisionTransformer, SwinTransformer, TimmViT, ViTAdapter, ViTPyramid
from mmlape.models.vit.model import UNI_PERCEIVER
from mmlape.projects import CeiT, T2TViT

Tensors = dict[str, Tensor]
D, PATCH = 24, 8
OF_TORCH = dict(norm_cfg=dict(type='LN', eps=1e-5))
BEIT = dict(pe_type='beit', qkv_bias='qv', layer_scale_init_value=1e-6)
OVER = dict(interaction_indexes=[[0, 0], [1, 1]], conv_inplane=2, deform_num_heads=3)
HEADS = {'head.weight': torch.ones(10, D), 'head.bias': torch.ones(10)}
INDEX = 'relative_position_index'


def by(*names: tuple[str, str]) -> Callable[[Tensors], Tensors]:
    return lambda tensors: renamed(tensors, *names)


SCALES = (r'gamma([12])$', r'ls\1.gamma')
OF_MMPRETRAIN = (
    (r'^patch_embed\.proj\.', 'patch_embed.projection.'),
    (r'^blocks\.(\d+)\.norm(\d)\.', r'layers.\1.ln\2.'),
    (r'^blocks\.(\d+)\.mlp\.fc1\.', r'layers.\1.ffn.layers.0.0.'),
    (r'^blocks\.(\d+)\.mlp\.fc2\.', r'layers.\1.ffn.layers.1.'),
    (r'^blocks\.', 'layers.'),
    (r'^norm\.', 'ln1.'),
    (r'^', 'backbone.'),
)
OF_MMSEG = ((r'attn\.qkv\.', 'attn.attn.in_proj_'), (r'attn\.proj\.', 'attn.attn.out_proj.'), *OF_MMPRETRAIN)
OF_VIT_PYTORCH = (
    (r'^patch_embed\.norm0', 'to_patch_embedding.1'),
    (r'^patch_embed\.proj', 'to_patch_embedding.2'),
    (r'^patch_embed\.norm1', 'to_patch_embedding.3'),
    ('^pos_embed', 'pos_embedding'),
    (r'^blocks\.(\d+)\.norm1', r'transformer.layers.\1.0.norm'),
    (r'^blocks\.(\d+)\.attn\.qkv', r'transformer.layers.\1.0.to_qkv'),
    (r'^blocks\.(\d+)\.attn\.proj', r'transformer.layers.\1.0.to_out.0'),
    (r'^blocks\.(\d+)\.norm2', r'transformer.layers.\1.1.net.0'),
    (r'^blocks\.(\d+)\.mlp\.fc1', r'transformer.layers.\1.1.net.1'),
    (r'^blocks\.(\d+)\.mlp\.fc2', r'transformer.layers.\1.1.net.4'),
    ('^norm', 'transformer.norm'),
)
OF_OPEN_CLIP = (
    (r'^patch_embed\.norm0', 'patchnorm_pre_ln'),
    (r'^patch_embed\.proj', 'conv1'),
    ('^cls_token', 'class_embedding'),
    ('^pos_embed', 'positional_embedding'),
    ('^norm_pre', 'ln_pre'),
    ('^norm', 'ln_post'),
    (r'^blocks\.', 'transformer.resblocks.'),
    (r'\.norm(\d)', r'.ln_\1'),
    (r'attn\.qkv\.', 'attn.in_proj_'),
    (r'attn\.proj', 'attn.out_proj'),
    (r'mlp\.fc1', 'mlp.c_fc'),
    (r'mlp\.fc2', 'mlp.c_proj'),
    (r'gamma(\d)', r'ls_\1.gamma'),
    ('^', 'visual.'),
)
OF_UNI_PERCEIVER = (
    (r'^blocks\.', 'layers.'),
    (r'attn\.qkv', 'self_attn.in_proj'),
    (r'attn\.proj', 'self_attn.out_proj'),
    (r'mlp\.fc', 'linear'),
    (r'gamma([12])$', r'gamma_\1'),
    ('^norm_pre', 'visual_embed.embeddings_norm'),
    (r'^patch_embed\.', 'visual_embed.patch_embed.'),
)
OF_ITS_PRETRAINING = (
    ('^', 'fused_encoder.'),
    (r'in_proj\.', 'in_proj_'),
    (r'^fused_encoder\.visual_embed\.', 'video_embed.'),
    (r'patch_embed\.proj', 'embeddings'),
    (r'patch_embed\.(?=spatial|temporal)', 'embeddings_st_pos.'),
)
SWIN_OF_MMPRETRAIN = (
    (r'^patch_embed\.proj\.', 'patch_embed.projection.'),
    (r'attn\.', 'attn.w_msa.'),
    (r'mlp\.fc1', 'ffn.layers.0.0'),
    (r'mlp\.fc2', 'ffn.layers.1'),
    (r'^layers\.', 'stages.'),
    ('^', 'backbone.'),
)


def vit_pytorch(tensors: Tensors) -> Tensors:
    """Patches are (row, column, channel)."""
    out = dict(tensors)
    for leaf in ('norm0.weight', 'norm0.bias'):
        out[f'patch_embed.{leaf}'] = out[f'patch_embed.{leaf}'].view(3, -1).t().flatten()
    out['patch_embed.proj.weight'] = out['patch_embed.proj.weight'].permute(0, 2, 3, 1).flatten(1)
    return renamed(out | {'pos_embed': out['pos_embed'][0], 'cls_token': out['cls_token'][0]}, *OF_VIT_PYTORCH)


def open_clip(tensors: Tensors) -> Tensors:
    """The stem has no bias unless a norm stands before it, and is linear then."""
    out = dict(tensors, cls_token=tensors['cls_token'].flatten(), pos_embed=tensors['pos_embed'][0])
    if 'patch_embed.norm0.weight' in out:
        out['patch_embed.proj.weight'] = out['patch_embed.proj.weight'].flatten(1)
    else:
        del out['patch_embed.proj.bias']
    return renamed(out, *OF_OPEN_CLIP)


def giant(tensors: Tensors) -> Tensors:
    """The gated FFN's first maps are one."""
    out = {name: value for name, value in renamed(tensors, SCALES).items() if '.mlp.w2.' not in name}
    for name in [name for name in out if '.mlp.w1.' in name]:
        other = tensors[name.replace('.w1.', '.w2.')]
        out[name.replace('.w1.', '.w12.')] = torch.cat((out.pop(name), other))
    return out


def teacher(tensors: Tensors) -> Tensors:
    """DINOv2's training puts layers into chunks."""
    return renamed(tensors, (r'^blocks\.(\d+)', r'blocks.\1.\1'), SCALES, ('^', 'backbone.'))


def uni_perceiver(tensors: Tensors) -> Tensors:
    """The PE is split into places and times, of which an image has the first."""
    out = renamed(tensors, *OF_UNI_PERCEIVER)
    times = torch.arange(1.0, 9.0)[:, None].expand(8, D).contiguous()
    parts = {'spatial': out.pop('pos_embed')[0] - times[0], 'temporal': times}
    return out | {f'visual_embed.patch_embed.{name}_pos_embed.weight': part for name, part in parts.items()}


def pretraining(tensors: Tensors) -> Tensors:
    return renamed(uni_perceiver(tensors), *OF_ITS_PRETRAINING)


def of_swin_timm(tensors: Tensors) -> Tensors:
    """Each merging belongs to the stage after it; indices are computed."""
    tensors = {name: value for name, value in tensors.items() if not name.endswith(INDEX)}
    return renamed(tensors, (r'^layers\.0\.downsample', 'layers.1.downsample'), (r'^norm1\.', 'norm.'))


def of_swin_mmpretrain(tensors: Tensors) -> Tensors:
    """The four cells to merge are by row, and inside a channel."""
    out = {}
    for name, value in tensors.items():
        if re.search(r'downsample\.(norm|reduction)', name):
            cells = value.unflatten(-1, (4, -1))[..., [0, 2, 1, 3], :]
            value = cells.transpose(-1, -2).flatten(-2)
        out[name] = value
    return renamed(out, *SWIN_OF_MMPRETRAIN)


def clip(**options) -> nn.Module:
    model = vit(**{'patch_norm': 'post-posemb', **OF_TORCH, **options})
    if model.arguments['patch_norm'] == 'post-posemb':
        nn.init.zeros_(model.patch_embed.proj.bias)
    return model


def over_beit(**options) -> nn.Module:
    return randomise(ViTAdapter(ARCH, 64, **OVER, **BEIT | options))


def pyramid(**options) -> nn.Module:
    arch = dict(embed_dims=32, num_layers=2, num_heads=2, feedforward_channels=32)
    return randomise(ViTPyramid(arch, 64, **options))


class Row(NamedTuple):
    """A layout, as a public file has it."""

    layout: str
    build: Callable[[], nn.Module]
    public: Callable[[Tensors], Tensors] = dict
    target: str | None = None  # of ``convert``
    beside: Tensors = {}  # what such files have beside the model
    wrapper: str | None = None
    kept: bool = True  # whether ``convert`` keeps what stands beside it


MASK = {'mask_token': torch.zeros(1, D)}
TEXT = {'positional_embedding': torch.ones(7, 8), 'transformer.resblocks.0.ln_1.weight': torch.ones(8)}
INDICES = {f'blocks.{i}.attn.{INDEX}': torch.zeros(17, 17).long() for i in range(2)}
DETECTOR = {'rpn_head.rpn_conv.weight': torch.ones(3)}
DISTILLED = dict(HEADS, **{'head_dist.weight': torch.zeros(10, D)})
VIT_BEIT = dict(BEIT, final_norm=False)
UNI = dict(UNI_PERCEIVER, **OVER)
MASKS = {'layers.0.blocks.1.attn_mask': torch.ones(4, 16, 16)}
UNISCALE = (r'\.gamma([12])$', r'.gamma_\1')
ROWS = {
    'DeiT': Row('deit', vit, target='lape', beside=HEADS, wrapper='model'),
    'LaPE': Row('deit', lambda: vit(pe_joining='lape'), target='lape', beside=HEADS, wrapper='model'),
    'LaPE, unshared': Row('deit', lambda: vit(pe_joining='unshared'), target='lape', wrapper='model'),
    'LaPE, rpe': Row('deit', lambda: vit(pe_type='rpe', pe_joining='lape'), target='lape', wrapper='model'),
    'distilled': Row(
        'deit', lambda: vit(DistilledVisionTransformer), target='lape', beside=DISTILLED, wrapper='model'
    ),
    'timm': Row('deit', lambda: vit(layer_scale_init_value=0.1), by(SCALES), 'timm', HEADS),
    "timm, norm of the stem": Row(
        'deit', lambda: vit(patch_norm='post'), by((r'embed\.norm1', 'embed.norm')), 'timm', HEADS
    ),
    'classifier': Row(
        'deit', vit, by(('^', 'backbone.')), 'classifier', renamed(HEADS, ('head', 'head.layers.head')), 'state_dict'
    ),
    'own': Row('deit', lambda: vit(pe_joining='lape', patch_norm='dual'), target='mmlape', wrapper='state_dict'),
    'DINOv2': Row('deit', lambda: vit(layer_scale_init_value=0.1), by(SCALES), beside=MASK, kept=False),
    'DINOv2, giant': Row(
        'dinov2-giant', lambda: vit(layer_scale_init_value=0.1, ffn_type='swiglu'), giant, beside=MASK, kept=False
    ),
    "DINOv2's teacher": Row(
        'deit', lambda: vit(layer_scale_init_value=0.1), teacher,
        beside={'dino_head.mlp.0.weight': torch.zeros(2, 2)}, wrapper='teacher', kept=False,
    ),
    'mmpretrain': Row(
        'mmpretrain', vit, by(*OF_MMPRETRAIN), beside={'head.layers.head.weight': torch.ones(10, D)},
        wrapper='state_dict',
    ),
    'mmpretrain, BEiT': Row(
        'mmpretrain', lambda: vit(**VIT_BEIT), by(UNISCALE, *OF_MMPRETRAIN),
        beside={'backbone.ln2.weight': torch.ones(D)}, wrapper='state_dict', kept=False,
    ),
    'mmseg': Row(
        'mmseg', lambda: vit(**OF_TORCH), by(*OF_MMSEG), beside={'decode_head.layers.0.x': torch.ones(3)},
        wrapper='state_dict', kept=False,
    ),
    'vit-pytorch': Row(
        'vit-pytorch', lambda: vit(patch_norm='dual', qkv_bias=False, **OF_TORCH), vit_pytorch,
        beside={'mlp_head.weight': torch.ones(5, D)},
    ),
    'open_clip': Row('open_clip', clip, open_clip, beside=TEXT, kept=False),
    'open_clip, LayerScale': Row(
        'open_clip', lambda: clip(layer_scale_init_value=0.1), open_clip, beside=TEXT, kept=False
    ),
    'open_clip, norm of patches': Row(
        'open_clip', lambda: clip(patch_norm='pre-post-posemb'), open_clip, beside=TEXT, kept=False
    ),
    'BEiT': Row(
        'beit', lambda: vit(**VIT_BEIT), by(UNISCALE),
        beside=INDICES | HEADS | {'fc_norm.weight': torch.ones(D)}, kept=False,
    ),
    'adapter': Row(
        'vit-adapter', shallow_adapter, by(('^', 'backbone.')), beside=DETECTOR, wrapper='state_dict', kept=False
    ),
    'adapter over BEiT': Row(
        'beit-adapter', lambda: over_beit(with_cls_token=True), by(UNISCALE, ('^', 'backbone.')),
        beside=DETECTOR, wrapper='state_dict', kept=False,
    ),
    'adapter over BEiT, windows': Row(
        'beit-adapter',
        lambda: over_beit(window_attn=True, window_size=[4, 3], window_padding='before-qkv'), by(UNISCALE),
    ),
    'adapter over Uni-Perceiver': Row(
        'uni-perceiver-adapter', lambda: randomise(ViTAdapter(ARCH, 64, **UNI)), uni_perceiver,
        beside={'visual_embed.embeddings_type.weight': torch.ones(1, D)}, kept=False,
    ),
    'pyramid': Row('vit-baseline', lambda: pyramid(out_indices=1), wrapper='state_dict'),
    'pyramid over BEiT': Row(
        'beit-baseline',
        lambda: pyramid(
            **BEIT, with_cls_token=True, norm_maps=False, up_norm_cfg=dict(type='SyncBN'), out_indices=[0, 0, 1, 1]
        ),
        by(UNISCALE, (r'^up1\.', 'fpn1.'), (r'^up2\.', 'fpn2.0.')), wrapper='state_dict',
    ),
    'Swin': Row('swin', swin, by((r'^norm1\.', 'norm.')), 'swin', MASKS | HEADS, 'model'),
    'Swin with a table': Row(
        'swin', lambda: swin(pe_type=SWIN_BOTH), by((r'^norm1\.', 'norm.')), 'swin', HEADS, 'model'
    ),
    'Swin of timm': Row(
        'timm', swin, of_swin_timm, 'timm', renamed(HEADS, ('head', 'head.fc'))
    ),
    'Swin of mmpretrain': Row(
        'mmpretrain', lambda: swin(pe_type=SWIN_BOTH), of_swin_mmpretrain, 'mmpretrain',
        renamed(HEADS, ('head', 'head.fc')), 'state_dict',
    ),
    'T2T-ViT': Row('T2TViT', lambda: randomise(new_token_vit(T2TViT)), beside=HEADS, wrapper='state_dict_ema'),
    'CeiT': Row('CeiT', lambda: randomise(new_token_vit(CeiT)), beside=HEADS, wrapper='model'),
    'compact': Row(
        'compact-transformers', lambda: randomise(cvt(ARCH, 32, PATCH)),
        by(('^(?!tokenizer)', 'classifier.')), 'compact-transformers', {'classifier.fc.weight': torch.ones(5, D)},
    ),
}  # fmt: skip
"""Public files. Their weights are random, as none can be had here."""


def load(row: Row, path) -> tuple[nn.Module, object]:
    torch.manual_seed(1)
    model = row.build()
    return model, load_backbone(model, str(path))


def indexless(tensors: Tensors) -> Tensors:
    return {name: value for name, value in tensors.items() if not name.endswith((INDEX, 'attn_mask'))}


@pytest.mark.parametrize('name', ROWS)
def test_each_layout_is_read_described_and_written(tmp_path, name):
    row = ROWS[name]
    source = row.build()
    public = row.public(source.state_dict())
    path = save(tmp_path / 'a.pth', {**public, **row.beside}, row.wrapper)
    kind, weights = recognise_backbone(open_file(path))
    is_giant = row.layout == 'dinov2-giant'  # which is TimmViT's, but for those who ask for ours
    assert kind is (TimmViT if is_giant else type(source))
    assert is_giant or weights.layout == inspect(path)['layout'] == row.layout

    model, report = load(row, path)
    assert report.layout == row.layout and len(report.loaded) == report.total
    assert not report.new and not report.resized
    left = [key for key in row.beside if not key.endswith('attn_mask')]
    assert len(report.dropped) == len(left) + ('Uni' in name), report.dropped
    for key, value in model.state_dict().items():
        torch.testing.assert_close(value, source.state_dict()[key], msg=lambda text, key=key: f'{key}: {text}')

    if is_giant:
        return
    dropped = convert(path, tmp_path / 'ours.pth', 'mmlape', overwrite=True)
    assert bool(dropped) != row.kept
    again, report = load(row, tmp_path / 'ours.pth')
    assert_same(again, model)
    assert not report.new and not report.resized
    if row.target:
        convert(tmp_path / 'ours.pth', tmp_path / 'theirs.pth', row.target, overwrite=True)
        stored = torch.load(path, weights_only=True)
        written = torch.load(tmp_path / 'theirs.pth', weights_only=True)
        stored, written = (indexless(file[row.wrapper] if row.wrapper else file) for file in (stored, written))
        assert written.keys() == stored.keys(), written.keys() ^ stored.keys()
        assert all(torch.equal(value, stored[key]) for key, value in written.items())


def test_a_tensor_too_many_or_too_few_is_named_in_each_layout(tmp_path):
    for name in each(ROWS):
        row = ROWS[name]
        source = row.build()
        public = row.public(source.state_dict())
        deep = next(key for key in public if re.search(r'(blocks|layers)\.0\..*(norm|ln_?1)', key))
        extra = re.sub(r'(.*?(blocks|layers)\.0\.(\d\.)?(blocks\.0\.)?).*', r'\1extra.weight', deep)
        for tensors, message in (
            ({**public, extra: torch.ones(3)}, r'unexpected: .*extra\.weight'),
            ({key: value for key, value in public.items() if key != deep}, 'missing: '),
        ):
            with pytest.raises(CheckpointError, match=message):
                load(row, save(tmp_path / 'a.pth', tensors, row.wrapper))


def test_flax_archives(tmp_path):
    """AugReg's names, whose classifiers have a class row, with and without Dual PatchNorm."""
    for patch_norm in each(('none', 'dual')):
        source = vit(patch_norm=patch_norm)
        np.savez(tmp_path / 'a.npz', **to_flax(source))
        report = load_backbone(model := vit(patch_norm=patch_norm), str(tmp_path / 'a.npz'))
        assert report.layout == 'jax' and not report.new + report.dropped
        assert_same(model, source)
        convert(tmp_path / 'a.npz', tmp_path / 'b.pth', 'mmlape', overwrite=True)
        load_backbone(model := vit(patch_norm=patch_norm), str(tmp_path / 'b.pth'))
        assert_same(model, source)


def test_a_file_of_a_pretraining(tmp_path):
    """BEiT has one table for all layers, Uni-Perceiver other names and parts for other inputs."""
    source = vit(**BEIT)
    tensors = renamed(source.state_dict(), UNISCALE)
    table = tensors['blocks.1.attn.relative_position_bias_table']
    tensors = {name: value for name, value in tensors.items() if 'relative_position_bias_table' not in name}
    others = {'rel_pos_bias.relative_position_index': torch.zeros(17, 17).long(), 'lm_head.weight': torch.ones(9, D)}
    path = save(tmp_path / 'a.pth', {**tensors, 'rel_pos_bias.relative_position_bias_table': table, **others, **MASK})
    report = load_backbone(model := vit(**BEIT), path)
    assert all(torch.equal(block.attn.relative_position_bias_table, table) for block in model.blocks)
    assert set(report.dropped) == {*others, 'mask_token'}
    assert_same(model, source, [name for name in source.state_dict() if 'table' in name])

    source, model = (randomise(ViTAdapter(ARCH, 64, **UNI)) for _ in range(2))
    parts = ('blocks.', 'patch_embed.', 'norm_pre.', 'pos_embed')
    tensors = pretraining({name: value for name, value in source.state_dict().items() if name.startswith(parts)})
    texts = {'fused_encoder.token_embed.weight': torch.ones(7, D), 'loss_prepare.bias': torch.ones(3)}
    report = load_backbone(model, save(tmp_path / 'a.pth', tensors | texts))
    assert {'token_embed.weight', 'temporal_pos_embed.weight[1:]'} <= set(report.dropped)
    loaded = {name: value for name, value in model.state_dict().items() if name.startswith(parts)}
    assert all(torch.equal(value, source.state_dict()[name]) for name, value in loaded.items() if name != 'pos_embed')
    torch.testing.assert_close(model.pos_embed, source.pos_embed)


WRONG = {
    "is of BEiT, which has qkv_bias='qv' and pe_type='beit'": ('BEiT', vit),
    "qkv_bias='qv' is BEiT's, but the file is": ('DeiT', lambda: vit(**BEIT)),
    'missing: cls_token': ('adapter over BEiT, windows', lambda: over_beit(with_cls_token=True)),
    "window_padding='before-qkv'": (
        'adapter over BEiT, windows', lambda: over_beit(window_attn=True, window_size=[4, 3]),
    ),
    "the file is of Uni-Perceiver, which has patch_norm='post-posemb'": (
        'adapter over Uni-Perceiver', lambda: randomise(ViTAdapter(ARCH, 64, **OVER)),
    ),
    'eps=1e-5': (
        'adapter over Uni-Perceiver',
        lambda: randomise(ViTAdapter(ARCH, 64, **UNI | dict(norm_cfg=dict(type='LN', eps=1e-6)))),
    ),
    'matches no known layout': ('T2T-ViT', lambda: new_token_vit(CeiT)),
    r'unexpected: tokens_to_token\.attention1\.w ': (
        'T2T-ViT', lambda: new_token_vit(T2TViT, tokens_type='transformer'),
    ),
    "wrong PE: pos_embed is not the table of pe_type='sincos1d'": (
        'CeiT', lambda: new_token_vit(CeiT, pe_type='sincos1d'),
    ),
    'it is a file of mmlape.SwinTransformer .swin layout., and the model has VisionTransformer': ('Swin', vit),
    'it is a file of mmlape.VisionTransformer .deit layout., and the model has SwinTransformer': ('DeiT', swin),
    'it is a file of mmlape.CeiT .CeiT layout., and the model has VisionTransformer': ('CeiT', vit),
    "was trained with LaPE, but the model has pe_joining='default'": ('LaPE', vit),
    "was trained without LaPE, but the model has pe_joining='lape'": ('DeiT', lambda: vit(pe_joining='lape')),
    'missing: dist_token': ('DeiT', lambda: vit(DistilledVisionTransformer)),
    'new gammas of 1e-05 would .*set layer_scale_init_value=1, or 0': (
        'DeiT', lambda: type(vit())(ARCH, 32, PATCH, layer_scale_init_value=1e-5),
    ),
    'unexpected: layers.0.blocks.0.attn.relative_position_bias_table': ('Swin', lambda: swin(pe_type='learnable')),
}  # fmt: skip
"""What is said of a file that is of another model."""


def test_the_file_of_another_model_is_refused_by_its_name(tmp_path):
    for message in each(WRONG):
        name, build = WRONG[message]
        row = ROWS[name]
        path = save(tmp_path / 'a.pth', row.public(row.build().state_dict()), row.wrapper)
        with pytest.raises(CheckpointError, match=message):
            load_backbone(build(), path)


def test_swin_v2_and_sams_encoder_are_refused(tmp_path):
    from mmpretrain.models import SwinTransformerV2
    from timm.models.swin_transformer_v2 import SwinTransformerV2 as OfTimm

    sizes = dict(depths=(1, 1, 2, 1), num_heads=(1, 2, 4, 8))
    arch = dict(embed_dims=12, extra_norm_every_n_blocks=0, **sizes)
    sam = {**vit().state_dict(), 'pos_embed': torch.zeros(1, 4, 4, D), 'blocks.0.attn.rel_pos_h': torch.zeros(7, 8)}
    for stored, message, model in (
        (OfTimm(64, 4, num_classes=5, embed_dim=12, window_size=2, **sizes).state_dict(), 'Swin V2', swin()),
        (SwinTransformerV2(arch, 64, window_size=[2] * 4).state_dict(), 'Swin V2', swin()),
        (sam, "SAM's image encoder", vit()),
    ):
        path = save(tmp_path / 'a.pth', stored, None)
        for read in (inspect, lambda path, model=model: load_backbone(model, path)):
            with pytest.raises(CheckpointError, match=f'is of {message}, which cannot be loaded: '):
                read(path)


OURS = {
    'ViT': lambda: vit(pe_joining='lape', pe_norm='scalar', patch_norm='no-learnable', img_size=(48, 16)),
    'ViT, sinusoids': lambda: vit(pe_type='sincos2d', patch_norm='dual', qkv_bias=False),
    'ViT, no PE': lambda: vit(pe_type='none'),
    'adapter': lambda: over_beit(
        pe_type=['learnable', 'beit'],
        pe_joining='lape',
        window_attn=True,
        window_size=[4, 3],
        window_padding='before-qkv',
    ),
    'Swin': lambda: swin(pe_type=SWIN_BOTH, pe_joining='lape', patch_norm='dual'),
    'Swin, stages': lambda: swin(pe_type='learnable', pe_joining='lape-shared', pe_hierarchy='stage'),
    'Swin, patches of 8': lambda: swin(patch_size=8, qkv_bias=False, img_size=64),
    'T2T-ViT': lambda: randomise(new_token_vit(T2TViT, pe_joining='lape', pe_norm='channel', patch_norm='rms')),
    'CeiT': lambda: randomise(new_token_vit(CeiT, pe_type='rpe', patch_norm='pre')),
}


def test_our_own_files_print_what_loads_them(tmp_path):
    """Whatever their model is; with the record that such a model has."""
    for name in each(OURS):
        source = OURS[name]()
        record = metadata_of(source).plain()
        path = save(tmp_path / 'a.pth', source.state_dict(), 'state_dict', meta={KEY: record})
        found = inspect(path)
        model = built_of(found)
        assert_same(model, source)
        assert metadata_of(model).plain() == record and not model.load_report.resized
        own = record['backbones']['']
        shown = {key: found[key] for key in own if key in found}
        assert shown == {key: own[key] for key in shown} and found['layers'] == source.num_layers
        count = sum(value.numel() for value in source.parameters())
        assert int(found['parameters'].split()[0].replace(',', '')) >= count


@pytest.mark.parametrize('to', ['timm', 'swin', 'mmpretrain'])
def test_any_number_of_swins_stages_is_read_back(tmp_path, to):
    for depths in each([(2,), (1, 2), (1, 2, 1), (1, 1, 1, 1, 1)]):
        arch = dict(embed_dims=8, depths=depths, num_heads=(1, 2, 4, 8, 16)[: len(depths)])
        source, model = (randomise(SwinTransformer(arch, 32, window_size=2)) for _ in range(2))
        convert(save(tmp_path / 'a.pth', source.state_dict()), tmp_path / 'b.pth', to, overwrite=True)
        assert len(state_dict_of(read_checkpoint(tmp_path / 'b.pth'), '')) > 5
        report = load_backbone(model, str(tmp_path / 'b.pth'))
        assert len(report.loaded) == report.total
        assert_same(model, source)

"""One contract of every layout: what a public file holds is read, described, written and refused as its row here says.

A file is another implementation's, with its features, where there is one here; else the names of its layout are
written a second time, by hand. Golden names, shapes and tokens of transformers' models are in both spellings.
"""

import json
import re
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import mmdet.models.backbones
import mmpretrain.models
import mmseg.models.backbones
import numpy as np
import pytest
import timm
import timm.models.swin_transformer
import torch
from checkpoint_helpers import (
    assert_same,
    built_of,
    dinov2_of_authors,
    dinov3_of_authors,
    record_in,
    renamed,
    run_file,
    save,
    to_flax,
)
from each import each
from golden.recording import uniform
from golden_models import FOLDER
from model_helpers import ARCH, SWIN_BOTH, cvt, new_token_vit, randomise, shallow_adapter, swin, vit
from torch import Tensor, nn

import mmlape
from mmlape import models
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
INDEX, TABLE = 'relative_position_index', 'relative_position_bias_table'


# names by hand


def by(*names: tuple[str, str]) -> Callable[[Tensors], Tensors]:
    return lambda tensors: renamed(tensors, *names)


IN_MODEL = by(('^', 'backbone.'))
SCALES = (r'gamma([12])$', r'ls\1.gamma')
UNISCALE = (r'\.gamma([12])$', r'.gamma_\1')
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


def of_one_table(tensors: Tensors) -> Tensors:
    """BEiT's pretraining has one table for all layers."""
    tables = [name for name in tensors if name.endswith(TABLE)]
    one = {f'rel_pos_bias.{TABLE}': tensors[tables[0]]}
    return renamed({name: value for name, value in tensors.items() if name not in tables}, UNISCALE) | one


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


def without_norm_of_pe(tensors: Tensors) -> Tensors:
    """mmsegmentation's has one of more kinds than there are here."""
    return IN_MODEL({name: value for name, value in tensors.items() if 'ln_pre' not in name})


EVA02_OF_AUTHORS = (
    (r'mlp\.fc1_g', 'mlp.w1'),
    (r'mlp\.fc1_x', 'mlp.w2'),
    (r'mlp\.norm', 'mlp.ffn_ln'),
    (r'mlp\.fc2', 'mlp.w3'),
    (r'([qv])_proj\.bias', r'\1_bias'),
)


# models


def clip(**options) -> nn.Module:
    model = vit(**{'patch_norm': 'post-posemb', **OF_TORCH, **options})
    if model.arguments['patch_norm'] == 'post-posemb':
        nn.init.zeros_(model.patch_embed.proj.bias)
    return model


def over_beit(**options) -> nn.Module:
    return randomise(ViTAdapter(ARCH, 64, **OVER, **BEIT | options))


def beit_of_one_table() -> nn.Module:
    model = vit(**VIT_BEIT)
    for block in model.blocks:
        getattr(block.attn, TABLE).data.copy_(getattr(model.blocks[0].attn, TABLE))
    return model


def pyramid(**options) -> nn.Module:
    arch = dict(embed_dims=32, num_layers=2, num_heads=2, feedforward_channels=32)
    return randomise(ViTPyramid(arch, 64, **options))


def of_timm(name: str, side: int, **options) -> TimmViT:
    args = dict(embed_dim=48, depth=3, num_heads=4)
    return TimmViT(name, img_size=side, model_args=args, **options)


def timms(name: str, side: int, num_classes: int = 0) -> nn.Module:
    return timm.create_model(name, img_size=side, embed_dim=48, depth=3, num_heads=4, num_classes=num_classes)


def mmsegs(**options) -> nn.Module:
    shape = dict(img_size=(32, 32), patch_size=8, embed_dims=D, num_layers=2, num_heads=3, mlp_ratio=2)
    theirs = mmseg.models.backbones.VisionTransformer(**shape, out_indices=(0, 1), **options)
    theirs.pre_norm = False
    return theirs


def mmpretrains_beit(shared: bool) -> nn.Module:
    tables = dict(use_rel_pos_bias=not shared, use_shared_rel_pos_bias=shared)
    return mmpretrain.models.BEiTViT(ARCH, 32, PATCH, out_type='raw', final_norm=False, **tables)


def mmpretrains_swin(**options) -> nn.Module:
    arch = dict(embed_dims=12, depths=[2, 2], num_heads=[2, 4])
    return mmpretrain.models.SwinTransformer(arch, 32, window_size=4, out_indices=(1,), **options)


def detectors_swin(package) -> nn.Module:
    sizes = dict(embed_dims=12, depths=(2, 2), num_heads=(2, 4), strides=(4, 2), out_indices=(0, 1), window_size=4)
    return package.SwinTransformer(pretrain_img_size=32, **sizes)


FOUR = dict(embed_dims=12, depths=(1, 1, 2, 1), num_heads=(1, 2, 4, 8))


def timms_swin() -> nn.Module:
    sizes = dict(embed_dim=12, depths=FOUR['depths'], num_heads=FOUR['num_heads'], window_size=2)
    return timm.models.swin_transformer.SwinTransformer(64, 4, num_classes=0, **sizes)


@cache
def golden() -> tuple[dict, dict]:
    with np.load(FOLDER / 'layouts' / 'transformers.npz') as data:
        return json.loads(str(data['index'])), {name: torch.from_numpy(data[name]) for name in data.files[:-1]}


def ours(case: dict) -> nn.Module:
    kwargs = {key: tuple(value) if isinstance(value, list) else value for key, value in case['kwargs'].items()}
    return getattr(models, case['cls'])(**kwargs)


class Row(NamedTuple):
    """A layout, as a public file has it."""

    layout: str
    build: Callable[[], nn.Module]
    public: Callable[[Tensors], Tensors] = dict  # the names of the file, from those of the model that it is of
    target: str | None = None  # of ``convert``
    beside: Tensors = {}  # what such files have beside the model
    wrapper: str | None = None
    kept: bool = True  # whether ``convert`` keeps what stands beside it
    peer: Callable[[], nn.Module] | None = None  # the model of another implementation, whose file it is
    golden: str = ''  # a case of golden data, and the spelling of its names
    side: int | tuple[int, int] = 32  # of the image


MASK = {'mask_token': torch.zeros(1, D)}
TEXT = {'positional_embedding': torch.ones(7, 8), 'transformer.resblocks.0.ln_1.weight': torch.ones(8)}
INDICES = {f'blocks.{i}.attn.{INDEX}': torch.zeros(17, 17).long() for i in range(2)}
DETECTOR = {'rpn_head.rpn_conv.weight': torch.ones(3)}
DISTILLED = dict(HEADS, **{'head_dist.weight': torch.zeros(10, D)})
VIT_BEIT = dict(BEIT, final_norm=False)
UNI = dict(UNI_PERCEIVER, **OVER)
MASKS = {'layers.0.blocks.1.attn_mask': torch.ones(4, 16, 16)}
MAPS = dict(out_type='featmap', out_indices=(0, 1))
OF_MMSEG = dict(layout='mmseg', beside={'decode_head.layers.0.x': torch.ones(3)}, wrapper='state_dict', kept=False)
OF_MMPRETRAIN = dict(layout='mmpretrain', public=IN_MODEL, wrapper='state_dict')
SWIN_OF_MMPRETRAIN = dict(OF_MMPRETRAIN, target='mmpretrain', beside=renamed(HEADS, ('head', 'head.fc')))
SWIN_OF_DETECTORS = dict(OF_MMPRETRAIN, build=lambda: swin(**MAPS), beside={'neck.x': torch.zeros(1)}, kept=False)
ROWS = {
    'DeiT': Row('deit', vit, target='lape', beside=HEADS, wrapper='model'),
    'LaPE': Row('deit', lambda: vit(pe_joining='lape'), target='lape', beside=HEADS, wrapper='model'),
    'LaPE, unshared': Row('deit', lambda: vit(pe_joining='unshared'), target='lape', wrapper='model'),
    'LaPE, rpe': Row('deit', lambda: vit(pe_type='rpe', pe_joining='lape'), target='lape', wrapper='model'),
    'distilled': Row(
        'deit', lambda: vit(DistilledVisionTransformer), target='lape', beside=DISTILLED, wrapper='model'
    ),
    'timm': Row('deit', lambda: vit(layer_scale_init_value=0.1), by(SCALES), 'timm', HEADS),
    'timm, norm of the stem': Row(
        'deit', lambda: vit(patch_norm='post'), by((r'embed\.norm1', 'embed.norm')), 'timm', HEADS
    ),
    'classifier': Row(
        'deit', vit, IN_MODEL, 'classifier', renamed(HEADS, ('head', 'head.layers.head')), 'state_dict'
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
    'BEiT pretrained': Row(
        'beit', beit_of_one_table, of_one_table,
        beside=MASK | {f'rel_pos_bias.{INDEX}': torch.zeros(17, 17).long(), 'lm_head.weight': torch.ones(9, D)},
        kept=False,
    ),
    'adapter': Row(
        'vit-adapter', shallow_adapter, IN_MODEL, beside=DETECTOR, wrapper='state_dict', kept=False
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
    'T2T-ViT': Row('T2TViT', lambda: randomise(new_token_vit(T2TViT)), beside=HEADS, wrapper='state_dict_ema'),
    'CeiT': Row('CeiT', lambda: randomise(new_token_vit(CeiT)), beside=HEADS, wrapper='model'),
    'compact': Row(
        'compact-transformers', lambda: randomise(cvt(ARCH, 32, PATCH)),
        by(('^(?!tokenizer)', 'classifier.')), 'compact-transformers', {'classifier.fc.weight': torch.ones(5, D)},
    ),
    'AugReg': Row('jax', vit, to_flax),
    'AugReg, dual': Row('jax', lambda: vit(patch_norm='dual'), to_flax),
    'mmpretrain': Row(
        build=vit, beside={'head.layers.head.weight': torch.ones(10, D)}, **OF_MMPRETRAIN,
        peer=lambda: mmpretrain.models.VisionTransformer(ARCH, 32, PATCH, out_type='raw'),
    ),
    'mmpretrain, BEiT': Row(
        build=lambda: vit(**VIT_BEIT), beside={'backbone.ln2.weight': torch.ones(D)}, kept=False, **OF_MMPRETRAIN,
        peer=lambda: mmpretrains_beit(False),
    ),
    'mmpretrain, BEiT pretrained': Row(
        build=lambda: vit(**VIT_BEIT), kept=False, **OF_MMPRETRAIN, peer=lambda: mmpretrains_beit(True)
    ),
    'mmseg': Row(
        build=lambda: vit(**MAPS, **OF_TORCH, final_norm=False), public=IN_MODEL, peer=mmsegs, side=(32, 48),
        **OF_MMSEG,
    ),
    'mmseg, the backbone alone': Row(
        'mmseg', lambda: vit(**MAPS, **OF_TORCH, final_norm=False), peer=mmsegs, side=(32, 48)
    ),
    'mmseg, all norms': Row(
        build=lambda: vit(**MAPS, **OF_TORCH, patch_norm='post'), public=without_norm_of_pe, side=(32, 48), **OF_MMSEG,
        peer=lambda: mmsegs(patch_bias=True, patch_norm=True, pre_norm=True, final_norm=True),
    ),
    'Swin of timm': Row(
        'timm', lambda: randomise(SwinTransformer(FOUR, 64, window_size=2)), target='timm',
        beside=renamed(HEADS, ('head', 'head.fc')), peer=timms_swin, side=64,
    ),
    'Swin of mmpretrain': Row(
        build=lambda: swin(out_type='featmap'), **SWIN_OF_MMPRETRAIN, peer=mmpretrains_swin
    ),
    'Swin of mmpretrain with a table': Row(
        build=lambda: swin(pe_type=SWIN_BOTH, out_type='featmap'), **SWIN_OF_MMPRETRAIN,
        peer=lambda: mmpretrains_swin(use_abs_pos_embed=True),
    ),
    'Swin of mmdet': Row(**SWIN_OF_DETECTORS, peer=lambda: detectors_swin(mmdet.models.backbones), side=(44, 70)),
    'Swin of mmseg': Row(**SWIN_OF_DETECTORS, peer=lambda: detectors_swin(mmseg.models.backbones), side=(44, 70)),
}  # fmt: skip
ROPE_OF_EVA02 = {'rope.freqs_cos': torch.ones(4, 4), 'blocks.0.attn.rope.freqs_cos': torch.ones(4, 4)}
DECODER_OF_MAE = {'decoder_embed.weight': torch.ones(4, 4), 'decoder_blocks.0.norm1.weight': torch.ones(4)}
for timms_name, side, public, beside in (
    ('vit_base_patch16_clip_224', 32, dict, {}),
    ('vit_base_patch16_siglip_224', 32, dict, {}),
    ('deit3_small_patch16_224', 32, dict, {}),
    ('vit_small_patch14_reg4_dinov2', 28, dinov2_of_authors, {}),
    ('vit_small_patch16_dinov3_qkvb', 32, dinov3_of_authors, {}),
    ('eva02_base_patch14_224', 28, by(*EVA02_OF_AUTHORS), ROPE_OF_EVA02),
    ('vit_base_patch16_224', 32, dict, DECODER_OF_MAE),
):
    ROWS[timms_name] = Row(
        'timm',
        lambda name=timms_name, side=side: of_timm(name, side),
        public,
        beside=beside,
        peer=lambda name=timms_name, side=side: timms(name, side, 5 if side == 32 else 0),
        side=side,
    )
ROWS |= {
    f'transformers, {name}, {form}': Row(
        case['layout'], lambda case=case: ours(case), target=case['target'] or None, golden=f'{name}/{form}'
    )
    for name, case in golden()[0].items()
    for form in ('file', 'state')
}
"""Public files. Weights are random, as none can be had here."""


@torch.no_grad()
def outputs(model: nn.Module, side: int | tuple[int, int]) -> list[Tensor]:
    """Return what a model computes of an image, in float64."""
    rows, columns = side if isinstance(side, tuple) else (side, side)
    image = uniform('image', (1, 3, rows, columns))
    model.double().train(False)  # which OpenMMLab's models do not return
    if hasattr(model, 'forward_intermediates') and hasattr(model, 'blocks'):  # timm's plain ViTs
        return model.forward_intermediates(image, 1, norm=True, intermediates_only=True, output_fmt='NCHW')
    out = model(image)
    every = [out] if isinstance(out, Tensor) else out
    return [part for one in every for part in (one if isinstance(one, tuple | list) else (one,))]


def file_of(row: Row) -> tuple[Tensors, nn.Module | list[Tensor], float]:
    """Return the tensors of a file, the model that it is of or what that computes, and how exactly that is known."""
    if row.golden:
        name, _, form = row.golden.partition('/')
        case, known = golden()[0][name], golden()[1]
        stored = {key: uniform(key, shape).float() for key, shape in case[form].items()}
        expected = [value for key, value in known.items() if key.startswith(f'{row.golden}/')]
        return stored, expected, max(case['tolerance'], 1e-10)
    source = randomise(row.peer()) if row.peer else row.build()
    public = row.public(source) if row.public is to_flax else row.public(source.state_dict())
    return {**public, **row.beside}, source, 1e-5 if row.peer else 1e-6


def write(row: Row, tensors: Tensors, folder) -> str:
    if row.public is not to_flax:
        return save(folder / 'a.pth', tensors, row.wrapper)
    np.savez(folder / 'a.npz', **tensors)
    return str(folder / 'a.npz')


def load(row: Row, path, **options) -> tuple[nn.Module, object]:
    torch.manual_seed(1)
    model = row.build()
    return model, mmlape.load_weights(model, str(path), **options)


PREFIXES = ('', 'model.backbone.', 'model.vision_tower.')
"""Before the names of a file of transformers, which has a vision model anywhere."""
TOWER = {'model.text_model.encoder.layers.0.self_attn.q_proj.weight': torch.ones(2, 2)}


LEFT = r'(^|\.)(head|fc_norm|attn_pool|rel_pos_bias|rope_embed)\.|mask_token|bias_mask|relative_position_index'
"""What files of other implementations have beside the backbone that is read of them."""


@pytest.mark.parametrize('name', ROWS)
def test_a_file_is_read(tmp_path, name):
    """The model computes what the one computes that the file is of; of our own models it has the tensors."""
    row = ROWS[name]
    tensors, source, atol = file_of(row)
    for prefix in PREFIXES if row.golden.endswith('/file') else ('',):
        named = {prefix + key: value for key, value in tensors.items()} | (TOWER if prefix else {})
        model, report = load(row, write(row, named, tmp_path))
        assert report.layout == row.layout and len(report.loaded) == report.total and not report.resized
        assert all('(zeros)' in key for key in report.new) and (row.golden or not report.new)
        left = [key for key in row.beside if not key.endswith('attn_mask')]
        if row.peer:
            assert len(report.dropped) >= len(left)
            assert all(key in left or re.search(LEFT, key) for key in report.dropped), report.dropped
        elif not row.golden:
            assert len(report.dropped) == len(left) + ('Uni' in name), report.dropped
            torch.testing.assert_close(model.state_dict(), source.state_dict())
        found, expected = outputs(model, row.side), source if row.golden else outputs(source, row.side)
        assert len(found) == len(expected) > 0
        for one, wanted in zip(found, expected):
            torch.testing.assert_close(one, wanted.double(), rtol=0, atol=atol)


def indexless(tensors: Tensors) -> Tensors:
    return {name: value for name, value in tensors.items() if not name.endswith((INDEX, 'attn_mask'))}


OTHER_PARTS = r'(^|\.)(pooler|head|decoder|classifier|swin\.layernorm)\.|mask_token|visual_projection'


def of_tower(tensors: Tensors) -> Tensors:
    """Return the tensors of the vision model in a file of transformers, by its own names."""
    tower = next(key for key in tensors if 'embeddings.patch_embedding' in key).partition('embeddings.')[0]
    inner = {key.removeprefix(tower): value for key, value in tensors.items() if key.startswith(tower)}
    return {key: value for key, value in inner.items() if not re.search(OTHER_PARTS, key)}


def described(folder, model: nn.Module) -> str:
    """Return a run's file of a model, after what `inspect` prints of it has built the model with its record."""
    run, record = run_file(folder / 'run.pth', model), metadata_of(model).plain()
    found = inspect(run)
    built = built_of(found)
    assert_same(built, model)
    assert metadata_of(built).plain() == record == record_in(run).plain() and not built.load_report.resized
    own = record['backbones']['']
    shown = {key: found[key] for key in own if key in found}
    assert shown == {key: own[key] for key in shown} and found['layers'] == model.num_layers
    count = sum(value.numel() for value in model.parameters())
    assert int(found['parameters'].split()[0].replace(',', '')) >= count
    return run


OF_FILES = {name: row for name, row in ROWS.items() if not name.endswith(', state')}


@pytest.mark.parametrize(
    'name', [name for name, row in OF_FILES.items() if not isinstance(row.peer and row.build(), TimmViT)]
)
def test_a_file_is_described_and_written(tmp_path, name):
    """In our names it is the same model, which `inspect` prints, and back in its layout it is the file."""
    row = ROWS[name]
    tensors, _, _ = file_of(row)
    path = write(row, tensors, tmp_path)
    kind, weights = recognise_backbone(open_file(path))
    model, _ = load(row, path)
    if row.layout == 'dinov2-giant':  # which is TimmViT's, but for those who ask for ours
        assert kind is TimmViT
        return
    assert kind is type(model) and weights.layout == inspect(path)['layout'] == row.layout
    run = described(tmp_path, model)
    dropped = convert(path, tmp_path / 'ours.pth', 'mmlape', overwrite=True)
    assert row.golden or bool(dropped) != row.kept
    again, report = load(row, tmp_path / 'ours.pth')
    assert_same(again, model)
    assert not report.resized and (row.golden or not report.new)
    if row.target:
        theirs = tmp_path / ('theirs.safetensors' if row.golden else 'theirs.pth')
        convert(run if row.golden else tmp_path / 'ours.pth', theirs, row.target, overwrite=True)
        written = read_checkpoint(theirs)
        written = written[row.wrapper] if row.wrapper else written
        written = {key: value for key, value in written.items() if key != 'meta'}
        alike = of_tower if row.golden else dict if row.peer else indexless
        stored, written = alike(tensors), alike(written)
        assert written.keys() == stored.keys(), written.keys() ^ stored.keys()
        assert all(torch.equal(value, stored[key]) for key, value in written.items())


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
        described(tmp_path, OURS[name]())


@pytest.mark.parametrize('name', [name for name, row in OF_FILES.items() if row.public is not to_flax])
def test_a_tensor_too_many_or_too_few_is_named(tmp_path, name):
    row = ROWS[name]
    tensors, _, _ = file_of(row)
    deep = next(key for key in tensors if re.search(r'^(?!decoder).*(blocks|layers?)\.0\..*(norm|ln_?1)', key))
    extra = re.sub(r'(.*?(blocks|layers?)\.0\.(\d\.)?(blocks\.0\.)?).*', r'\1extra.weight', deep)
    fewer = {key: value for key, value in tensors.items() if key != deep}
    for given, message in (({**tensors, extra: torch.ones(3)}, r'unexpected: .*extra\.weight'), (fewer, 'missing: ')):
        with pytest.raises(CheckpointError, match=message):
            load(row, write(row, given, tmp_path))


@pytest.mark.parametrize('name', ROWS)
def test_a_table_is_resized_under_its_own_name(tmp_path, name):
    """By `mmlape.resize_pos_embed`; a file without a table of an absolute PE, or with more than that, says so."""
    row = ROWS[name]
    stored = {key: torch.as_tensor(value) for key, value in file_of(row)[0].items()}
    model = row.build()
    if row.golden:
        has_table = golden()[0][row.golden.partition('/')[0]]['table']
    else:
        has_table = bool(model.stored_tables()) and not model.position.inside and 'Uni' not in name
    given = {row.wrapper: stored} if row.wrapper else stored
    try:
        out = mmlape.resize_pos_embed(given, (5, 7))
    except CheckpointError as error:
        rowless = 'deit3' in name and 'beside no token: say which by source=' in str(error)
        refused = re.search('has no table|inside attention|computed of several', str(error)) and not has_table
        assert rowless or refused, error
        return
    assert has_table and list(out) == list(stored)
    changed = [key for key in stored if out[key] is not stored[key]]
    assert len(changed) == len(model.stored_tables())
    same = mmlape.resize_pos_embed(given, model.grid)
    for key in changed:
        assert torch.equal(same[key], stored[key])
        assert out[key].shape[-2] - stored[key].shape[-2] == 35 - model.grid[0] * model.grid[1]


def test_the_rows_are_the_layouts_and_the_targets_that_the_page_names():
    for kind in (models.VisionTransformer, models.SwinTransformer):
        adapter = kind.checkpoint_adapter
        known = {layout.name for layout in adapter.layouts(kind) if not layout.refused}
        of_kind = {row.layout for row in ROWS.values()}
        assert known <= of_kind | {'uni-perceiver'}, known - of_kind
        assert set(adapter.targets()) <= {row.target for row in ROWS.values()}
    assert len(golden()[0]) == 29


def test_a_file_of_a_pretraining(tmp_path):
    """Uni-Perceiver's has other names, and parts for other inputs."""
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
        'DeiT', lambda: models.VisionTransformer(ARCH, 32, PATCH, layer_scale_init_value=1e-5),
    ),
    'unexpected: layers.0.blocks.0.attn.relative_position_bias_table': ('Swin', lambda: swin(pe_type='learnable')),
}  # fmt: skip
"""What is said of a file that is of another model."""


def assert_refused(name: str, model: nn.Module, message: str, folder) -> None:
    path = write(ROWS[name], file_of(ROWS[name])[0], folder)
    with pytest.raises(CheckpointError, match=message):
        load_backbone(model, path)


def test_the_file_of_another_model_is_refused_by_its_name(tmp_path):
    for message in each(WRONG):
        name, build = WRONG[message]
        assert_refused(name, build(), message, tmp_path)
    for name in each(('mmpretrain, BEiT', 'mmpretrain, BEiT pretrained')):
        assert_refused(name, vit(), "is of BEiT, which has qkv_bias='qv' and pe_type='beit'", tmp_path)
    kwargs = golden()[0]['dinov3']['kwargs']
    for pe_type in each(('none', 'rope', dict(kwargs['pe_type'], pairs='interleaved'))):
        model = ours(dict(golden()[0]['dinov3'], kwargs=dict(kwargs, pe_type=pe_type)))
        assert_refused('transformers, dinov3, file', model, r"of DINOv3, which has pe_type=\{'type': 'rope'", tmp_path)


def test_what_no_model_here_computes_is_one_line(tmp_path):
    """In the words of its layout, by loading and by ``inspect``."""
    sizes = dict(depths=(1, 1, 2, 1), num_heads=(1, 2, 4, 8))
    of_timm_v2 = timm.models.SwinTransformerV2(64, 4, num_classes=5, embed_dim=12, window_size=2, **sizes)
    arch = dict(embed_dims=12, extra_norm_every_n_blocks=0, **sizes)
    of_mmpretrain = mmpretrain.models.SwinTransformerV2(arch, 64, window_size=[2] * 4)
    stem = {'embeddings.patch_embeddings.projection.weight': torch.ones(8, 3, 4, 4)}
    layer, block = 'encoder.layer.0.attention.attention.query.weight', 'encoder.layers.0.blocks.0.attention.self'
    of_vit = {**stem, layer: torch.ones(8, 8)}
    sam = {**vit().state_dict(), 'pos_embed': torch.zeros(1, 4, 4, D), 'blocks.0.attn.rel_pos_h': torch.zeros(7, 8)}
    for stored, model, message in (
        (of_timm_v2.state_dict(), swin(), 'is of Swin V2, which cannot be loaded: '),
        (of_mmpretrain.state_dict(), swin(), 'is of Swin V2, which cannot be loaded: '),
        (sam, vit(), "is of SAM's image encoder, which cannot be loaded: "),
        ({'embeddings.patch_embeddings.backbone.x': torch.ones(2), layer: torch.ones(2)}, vit(),
         'a convolutional network stands before its layers'),
        ({**of_vit, 'embeddings.detection_tokens': torch.ones(1, 3, 8)}, vit(), 'YOLOS, which cannot be'),
        ({**stem, f'{block}.logit_scale': torch.ones(2), f'{block}.query.weight': torch.ones(2, 2)}, swin(),
         'Swin V2, which cannot be loaded'),
        ({f'{a}.{key}': value for key, value in of_vit.items() for a in ('left', 'right')}, vit(),
         r"2 vision models \('left\.', 'right\.'\): give mmlape.load_weights a dict"),
    ):  # fmt: skip
        path = save(tmp_path / 'a.pth', stored, None)
        for read in (inspect, lambda path, model=model: load_backbone(model, path)):
            with pytest.raises(CheckpointError, match=message) as error:
                read(path)
            assert len(str(error.value).splitlines()) == 1 and 'a.pth' in str(error.value)


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


NO_PLACE = {
    'transformers-vit': (
        dict(with_cls_token=False, out_type='raw'), dict(layer_scale_init_value=0.1), dict(num_registers=2),
        dict(pe_joining='lape'), dict(patch_norm='dual'), dict(with_prefix_pe=False), dict(pe_type='none'),
        dict(ffn_type='swiglu'), dict(qkv_bias='qv'), dict(norm_placement='post'), dict(final_norm=False),
    ),
    'transformers-dinov2': (dict(), dict(layer_scale_init_value=0.1, with_cls_token=False, out_type='raw')),
    'transformers-dinov3': (
        dict(), dict(pe_type='rope', layer_scale_init_value=0.1),
        dict(pe_type=['learnable', 'rope'], layer_scale_init_value=0.1),
    ),
    'transformers-clip': (dict(), dict(patch_norm='post-posemb', qkv_bias=False)),
    'transformers-siglip': (dict(), dict(patch_norm='post-posemb', with_cls_token=False, out_type='raw')),
    'transformers-beit': (dict(), dict(qkv_bias='qv', pe_type='rpe')),
    'transformers-deit': (dict(),),
}  # fmt: skip


def test_what_a_class_has_no_place_for_is_named(tmp_path):
    for target, every in NO_PLACE.items():
        for options in each(every):
            model = models.VisionTransformer(golden()[0]['vit']['kwargs']['arch'], 32, 8, **options)
            state = dict(state_dict=model.state_dict(), meta={KEY: metadata_of(model).plain()})
            torch.save(state, tmp_path / 'a.pth')
            with pytest.raises(CheckpointError, match=rf'the {target} layout has no place for .*; use --to mmlape'):
                convert(tmp_path / 'a.pth', tmp_path / 'b.pth', target, overwrite=True)


def test_classifiers_go_along_where_they_read_one_token_or_the_mean(tmp_path):
    for name, heads in (
        ('vit classifier', {'classifier.weight': 'head.weight', 'classifier.bias': 'head.bias'}),
        (
            'deit with teacher',
            {'cls_classifier.weight': 'head.weight', 'distillation_classifier.weight': 'head_dist.weight'},
        ),
        ('dinov2 classifier', {}),  # of two tokens
        ('swin classifier', {'classifier.weight': 'head.weight'}),
    ):  # fmt: skip
        stored = file_of(ROWS[f'transformers, {name}, file'])[0]
        torch.save(stored, tmp_path / 'a.pth')
        left_out = convert(tmp_path / 'a.pth', tmp_path / 'b.pth', 'mmlape', overwrite=True)
        written = read_checkpoint(tmp_path / 'b.pth')['state_dict']
        for theirs, ours_ in heads.items():
            assert torch.equal(written[ours_], stored[theirs])
        assert heads or 'classifier.weight' in left_out
        target = golden()[0][name]['target']
        convert(tmp_path / 'b.pth', tmp_path / 'c.pth', target, overwrite=True)
        back = read_checkpoint(tmp_path / 'c.pth')
        assert all(torch.equal(back[theirs], stored[theirs]) for theirs in heads)


def test_parts_that_a_list_names_are_one_file(tmp_path):
    from safetensors.torch import save_file

    row = ROWS['transformers, vit, file']
    stored, expected, atol = file_of(row)
    for suffix, stem, write_part in (('.safetensors', 'model', save_file), ('.bin', 'pytorch_model', torch.save)):
        names = [f'model-0000{number}-of-00003{suffix}' for number in (1, 2, 3)]
        for number, name in enumerate(names):
            write_part(dict(list(stored.items())[number::3]), tmp_path / name)
        index = {'metadata': {}, 'weight_map': {key: names[i % 3] for i, key in enumerate(stored)}}
        listed = tmp_path / f'{stem}{suffix}.index.json'
        listed.write_text(json.dumps(index))
        model, _ = load(row, listed)
        torch.testing.assert_close(outputs(model, 32), expected, rtol=0, atol=atol)
        (tmp_path / names[1]).unlink()
        with pytest.raises(CheckpointError, match=rf'{names[1]}: there is no such file'):
            load(row, listed)
        with pytest.raises(CheckpointError, match='a folder; name the file of weights in it'):
            load(row, tmp_path)
    for text in (
        '{}',
        '{"weight_map": 3}',
        '{"weight_map": {"a": 3}}',
        '{"weight_map": {"a": "model.bin.index.json"}}',
    ):
        listed.write_text(text)
        with pytest.raises(CheckpointError, match='no list of the parts|is a list itself|no tensors in it'):
            load(row, listed)

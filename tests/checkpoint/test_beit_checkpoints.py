"""Files of BEiT, Uni-Perceiver, AugReg and DINOv2 in the layouts of their authors, under the adapter and without."""

import re

import torch
import torch.nn.functional as F
from checkpoint_helpers import assert_same, renamed, save
from model_helpers import ARCH, randomise
from torch import Tensor, nn

from mmlape.checkpoint import load_backbone
from mmlape.models import VisionTransformer, ViTAdapter
from mmlape.models.position.beit import resize_offsets
from mmlape.models.position.relative_bias import INDEX, TABLE

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


def as_unilm(model: nn.Module, side: int = 4) -> dict[str, Tensor]:
    """Name our tensors as BEiT's authors do; each layer of theirs has an index."""
    tensors = renamed(model.state_dict(), (r'\.gamma([12])$', r'.gamma_\1'))
    count = side * side + model.num_prefix
    return tensors | {f'blocks.{i}.attn.{INDEX}': torch.zeros(count, count).long() for i in range(model.num_layers)}


def table(model: nn.Module, layer: int = 0) -> Tensor:
    return getattr(model.blocks[layer].attn, TABLE)


HEADS = {'fc_norm.weight': torch.ones(24), 'head.weight': torch.ones(5, 24), 'head.bias': torch.ones(5)}


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

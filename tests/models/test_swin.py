"""Swin against mmpretrain's and mmdetection's; its windows, position encodings, stages and initial values."""

import importlib

import pytest
import torch
import torch.nn.functional as F
from model_helpers import SWIN_ARCH, SWIN_BOTH, randomise, swin

from mmlape.checkpoint import load_backbone
from mmlape.checkpoint.key_maps import recognise
from mmlape.checkpoint.opening import open_file
from mmlape.errors import ConfigError
from mmlape.models import SwinTransformer
from mmlape.models.layers.attention import MultiheadAttention
from mmlape.models.swin.checkpoint import LAYOUTS
from mmlape.models.swin.layers import PatchMerging, merge_cells
from mmlape.projects.pe_figures.position import attended_grids


def test_windows_of_each_stage(tmp_path):
    """As timm's swin_s3_* have them: told by the tables, computed as there, and other windows are a warning."""
    from timm.models.swin_transformer import SwinTransformer as TimmSwin

    windows = (4, 2, 4, 2)
    options = dict(embed_dim=12, depths=(2, 2, 2, 1), num_heads=(1, 2, 4, 8))
    peer = randomise(TimmSwin(64, 4, num_classes=0, window_size=windows, **options))
    torch.save(peer.state_dict(), path := str(tmp_path / 'a.pth'))
    arch = dict(embed_dims=12, depths=(2, 2, 2, 1), num_heads=(1, 2, 4, 8))
    config = dict(arch=arch, window_size=windows, init_cfg=dict(type='Pretrained', checkpoint=path))
    model = SwinTransformer(**config).eval()
    model.init_weights()
    assert not (model.load_report.resized or model.load_report.warnings)
    image = torch.randn(2, 3, 64, 64)
    torch.testing.assert_close(model.double()(image.double())[0], peer.double()(image.double()), atol=1e-9, rtol=0)
    assert [grid[0] for grid in attended_grids(model, (16, 16))] == [4, 4, 2, 2, 4, 4, 2]
    report = load_backbone(SwinTransformer(config['arch'], window_size=2), path)
    assert 'window_size=(4, 2, 4, 2) takes its tables as they are' in report.warnings[0]
    assert report.resized['layers.2.blocks.0.attn.relative_position_bias_table'] == '4x4 -> 2x2'
    with pytest.raises(ConfigError, match='window_size has 2 values, the model 4 stages'):
        SwinTransformer(config['arch'], window_size=(4, 2))


@pytest.mark.parametrize(
    ('package', 'pads'), [('mmdet', True), ('mmseg', True), ('mmpretrain', True), ('mmpretrain', False)]
)
def test_maps_of_any_size_are_those_of_openmmlab(package, pads):
    """Where stem, windows and merging need padding; the short side of a map is a window, less, more in one stage only.

    Without padded small maps, which they refuse, an absolute PE is resized.
    """
    theirs = importlib.import_module(f'{package}.models').SwinTransformer
    stages = dict(embed_dims=12, depths=[2, 2], num_heads=[2, 4])
    own = dict(arch=stages, img_size=32, pad_small_map=pads, use_abs_pos_embed=not pads)
    options = own if package == 'mmpretrain' else dict(stages, strides=(4, 2))
    theirs = randomise(theirs(window_size=4, out_indices=(0, 1), **options)).double()
    pe_type = 'rpe' if pads else SWIN_BOTH
    ours = swin(out_indices=(0, 1), out_type='featmap', pad_small_map=pads, pe_type=pe_type).double()
    weights = recognise(open_file(theirs.state_dict()), LAYOUTS)
    assert weights.layout == 'mmpretrain'
    ours.load_state_dict(weights.tensors)
    for size in ((16, 64), (32, 32), (9, 90), (5, 7)) if pads else ((32, 32), (50, 90), (34, 122)):
        image = torch.randn(2, 3, *size, dtype=torch.float64)
        for mine, other in zip(ours(image), theirs(image), strict=True):
            # theirs resizes a PE in float32
            torch.testing.assert_close(mine, other, atol=1e-9 if pads or size == (32, 32) else 5e-6, rtol=0)


@pytest.mark.parametrize('pe_type', ['rpe', 'irpe', dict(type='irpe', on='qkv'), 'rope'])
def test_a_token_behind_the_border_changes_nothing_before_it(pe_type):
    """Also if it is huge: the mask is no finite number."""
    attn = swin(arch=dict(SWIN_ARCH, embed_dims=16), pe_type=pe_type).layers[0].blocks[1].attn
    x = torch.randn(1, 64, 16)
    out, x[0, 0] = attn(x, (8, 8)), 1e4
    changed = (attn(x, (8, 8)) - out).abs().amax(-1).view(8, 8) > 0
    assert changed[:2, :2].all() and changed.sum() == 4


WINDOWED = ['rpe', 'irpe', dict(type='irpe', on='qkv'), 'shaw', 'huang', 'transformer-xl', 'sasa', 'rope', 'alibi2d']


@pytest.mark.parametrize('pe_type', WINDOWED, ids=str)
def test_small_maps_with_every_term(pe_type):
    """A shrunk window is global attention in each square of a map; a padded map is one of zeros there, cropped."""
    arch = dict(SWIN_ARCH, embed_dims=16)
    shrunk, padded = (swin(arch=arch, pe_type=pe_type, pad_small_map=pad).double() for pad in (False, True))
    padded.load_state_dict(shrunk.state_dict())
    one, other = (model.layers[0].blocks[1].attn for model in (shrunk, padded))
    x = torch.randn(2, 3, 9, 16, dtype=torch.float64)
    alone = MultiheadAttention(16, 2, encodings=one.encodings, slot=one.encodings[0].slot).double()
    alone.load_state_dict(one.state_dict())
    squares = [alone(part.flatten(1, 2), (3, 3)).unflatten(1, (3, 3)) for part in x.split(3, dim=2)]
    tokens = x.flatten(1, 2)
    torch.testing.assert_close(one(tokens, (3, 9)), torch.cat(squares, dim=2).flatten(1, 2), atol=1e-12, rtol=0)
    zeros = F.pad(x, (0, 0, 0, 3, 0, 1)).flatten(1, 2)
    expected = other(zeros, (4, 12)).unflatten(1, (4, 12))[:, :3, :9]
    torch.testing.assert_close(other(tokens, (3, 9)), expected.flatten(1, 2), atol=1e-12, rtol=0)
    assert (one(tokens, (3, 9)) - other(tokens, (3, 9))).abs().max() > 1e-2


@pytest.mark.parametrize('pe_type', [*WINDOWED, 'none'], ids=str)
def test_images_of_a_batch_do_not_meet_in_shifted_windows(pe_type):
    attn = swin(arch=dict(SWIN_ARCH, embed_dims=16), pe_type=pe_type).double().layers[0].blocks[1].attn
    x = torch.randn(3, 72, 16, dtype=torch.float64)
    alone = torch.cat([attn(image[None], (8, 9)) for image in x])
    torch.testing.assert_close(attn(x, (8, 9)), alone, atol=1e-12, rtol=0)


def test_tables_of_stages_enter_with_the_tokens_by_default():
    model, plain = swin(pe_type='learnable', pe_hierarchy='stage'), swin(pe_type='none')
    weights = model.state_dict()
    first, second = weights.pop('absolute_pos_embed'), weights.pop('absolute_pos_embed1')
    plain.load_state_dict(weights)
    plain.patch_embed.register_forward_hook(lambda module, args, out: (out[0] + first, out[1]))
    plain.layers[0].downsample.register_forward_hook(lambda module, args, out: out + second)
    image = torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(model(image)[0], plain(image)[0])


def test_merging_a_pe_has_a_norm_of_its_own_and_shares_the_reduction():
    merging = randomise(PatchMerging(6, dict(type='LN'), 'layernorm'))
    pe = torch.randn(1, 35, 6)
    cells = merge_cells(pe, (5, 7))
    assert cells.shape == (1, 12, 24) and torch.equal(cells[0, 0], pe[0, [0, 7, 1, 8]].flatten())
    assert not cells[0, -1, 6:].any() and torch.equal(cells[0, -1, :6], pe[0, -1])
    own = F.layer_norm(cells, (24,), merging.pe_norm.weight, merging.pe_norm.bias, 1e-5)
    torch.testing.assert_close(merging.merge_position(pe, (5, 7)), own @ merging.reduction.weight.T)
    assert not torch.allclose(merging.merge_position(pe, (5, 7)), merging(pe, (5, 7)))

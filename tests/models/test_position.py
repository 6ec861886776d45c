"""Position embedding tables against their formulas, and the one resize against torch's own and its properties."""

import inspect

import pytest
import torch
import torch.nn.functional as F
from each import each
from model_helpers import kept_weights

from mmlape.checkpoint.metadata import mismatch
from mmlape.kinds import POSITION_ENCODINGS
from mmlape.models import VisionTransformer
from mmlape.models.layers.attention import MultiheadAttention
from mmlape.models.position import AttentionInput, AttentionPosition, AttentionSlot, resolve_position
from mmlape.models.position.absolute import Sincos2d
from mmlape.models.position.base import resize_absolute
from mmlape.models.position.relative_bias import OffsetBias
from mmlape.models.swin.layers import ShiftedWindowAttention


def test_resize_keeps_prefix_rows_and_interpolates_the_rest():
    pe = torch.randn(1, 2 + 12, 8)
    out = resize_absolute(pe, (3, 4), (5, 7), num_prefix=2)
    assert torch.equal(out[:, :2], pe[:, :2])
    image = pe[:, 2:].transpose(1, 2).reshape(1, 8, 3, 4)
    expected = F.interpolate(image, size=(5, 7), mode='bicubic', align_corners=False, antialias=False)
    torch.testing.assert_close(out[:, 2:], expected.flatten(2).transpose(1, 2))


def test_tiled_pe_gives_every_window_what_the_pretraining_grid_had():
    pe = torch.randn(1, 1 + 12, 8)
    out = resize_absolute(pe, (3, 4), (7, 6), num_prefix=1, mode='tile')
    assert torch.equal(out[:, :1], pe[:, :1]) and out.shape == (1, 1 + 42, 8)
    own, tiled = pe[0, 1:].view(3, 4, 8), out[0, 1:].view(7, 6, 8)
    assert all(torch.equal(tiled[i, j], own[i % 3, j % 4]) for i in range(7) for j in range(6))


@pytest.mark.parametrize('joining', ['default', 'lape'])
def test_windows_with_a_tiled_pe_equal_their_crops(joining):
    """A scene's windows are computed as four images of the pretraining's size."""
    arch = dict(embed_dims=32, num_layers=2, num_heads=2, feedforward_channels=64)
    common = dict(arch=arch, img_size=32, patch_size=8, pe_joining=joining, with_cls_token=False, out_type='featmap')
    crops = VisionTransformer(**common).eval()
    scene = VisionTransformer(**common, window_attn=True, window_size=4, interpolate_mode='tile').eval()
    scene.load_state_dict(crops.state_dict())
    image = torch.randn(2, 3, 64, 64)
    whole = scene(image)[0]
    for top, left in ((0, 0), (0, 32), (32, 0), (32, 32)):
        part = crops(image[..., top : top + 32, left : left + 32])[0]
        cells = whole[..., top // 8 : top // 8 + 4, left // 8 : left // 8 + 4]
        torch.testing.assert_close(cells, part, atol=1e-5, rtol=1e-4)


def resized(values, src, dst):
    """(rows * columns, C) values as images, by torch's own function."""
    image = values.detach().reshape(*src, -1).permute(2, 0, 1)[None]
    return F.interpolate(image, dst, mode='bicubic', align_corners=False)[0].permute(1, 2, 0)  # (rows, columns, C)


def relative(joining, grid=(3, 5)):
    """An attention whose bias table, and its norm, have random values; and the encoding."""
    arch = dict(embed_dims=8, num_layers=1, num_heads=2, feedforward_channels=8)
    size = [4 * side for side in grid]
    attn = VisionTransformer(arch, size, 4, pe_type='rpe', pe_joining=joining).blocks[0].attn
    for parameter in attn.parameters():
        torch.nn.init.normal_(parameter)
    return attn, attn.encodings[0]


@torch.no_grad()
@pytest.mark.parametrize('joining', ['default', 'lape'])
@pytest.mark.parametrize('grid', [(3, 5), (4, 7), (5, 3)], ids=str)
def test_a_relative_bias_is_an_image_of_offsets(joining, grid):
    """Rows of the table are offsets of rows; the parameters of its norm are an image of the keys."""
    attn, encoding = relative(joining)
    spans = [[2 * side - 1 for side in shape] for shape in ((3, 5), grid)]
    table, (rows, columns) = resized(attn.relative_position_bias_table, *spans), grid
    cells = [divmod(cell, columns) for cell in range(rows * columns)]
    bias = torch.stack([
        torch.stack([table[i - k + rows - 1, j - m + columns - 1] for k, m in cells]) for i, j in cells
    ]).movedim(2, 0)  # fmt: skip
    if joining == 'lape':
        weight, shift = (resized(value, (3, 5), grid).flatten() for value in attn.pe_norm.parameters())
        bias = F.layer_norm(bias, weight.shape, weight, shift, 1e-5)
    torch.testing.assert_close(encoding.bias(attn, grid), bias, atol=1e-5, rtol=1e-5)
    found = encoding.logits(attn, torch.zeros(1), torch.zeros(1), grid)[0]
    torch.testing.assert_close(found[:, 1:, 1:], bias, atol=1e-5, rtol=1e-5)
    assert not found[:, 0].any() and not found[:, :, 0].any()


@torch.no_grad()
def test_a_stored_relative_bias_is_resized_as_that_image():
    (small, encoding), (large, _) = relative('lape'), relative('lape', (4, 7))
    found = encoding.resize(large.state_dict(), (4, 7))
    table = resized(large.relative_position_bias_table, (7, 13), (5, 9)).flatten(0, 1)
    torch.testing.assert_close(found['relative_position_bias_table'], table)
    assert torch.equal(found['relative_position_index'], small.relative_position_index)
    for leaf in ('weight', 'bias'):
        expected = resized(getattr(large.pe_norm, leaf), (4, 7), (3, 5)).flatten()
        torch.testing.assert_close(found[f'pe_norm.{leaf}'], expected)


# encodings inside attention, against attention written down again


class Rotate(AttentionPosition):
    """A quarter turn of each pair of the queries' channels; turned keys, too, would leave their products alone."""

    def rotate(self, attn, q, k, grid):
        return torch.stack((-q[..., 1::2], q[..., ::2]), dim=-1).flatten(-2), k


class Content(AttentionPosition):
    """A term of the logits that depends on queries and keys, and one of the values."""

    def __init__(self, reads_weights):
        self.reads_weights = reads_weights

    def logits(self, attn, q, k, grid):
        return (q.sum(-1, keepdim=True) - k.sum(-1)[:, :, None]) / 7

    def values(self, attn, weights, grid):
        return weights.cumsum(-1)[..., : attn.head_dims] if self.reads_weights else None


@pytest.mark.parametrize('count', [1, 2])
@pytest.mark.parametrize('reads_weights', [False, True])
@pytest.mark.parametrize('rotated', [False, True])
def test_attention_with_encodings_is_the_equation(reads_weights, rotated, count):
    """Terms of several encodings add up, turns follow one another."""
    encodings = count * [Content(reads_weights), *([Rotate()] if rotated else [])]
    attn = MultiheadAttention(12, 2, encodings=encodings).double()
    x = torch.randn(2, 8, 12, dtype=torch.float64)
    q, k, v = attn.qkv(x).unflatten(-1, (3, 2, 6)).permute(2, 0, 3, 1, 4)
    term = (q.sum(-1)[..., :, None] - k.sum(-1)[..., None, :]) / 7
    for _ in range(count if rotated else 0):
        q, k = Rotate().rotate(attn, q, k, (2, 4))
    weights = (q @ k.mT / 6**0.5 + count * term).softmax(-1)
    out = weights @ v + (count * weights.cumsum(-1)[..., :6] if reads_weights else 0)
    torch.testing.assert_close(attn(x, (2, 4)), attn.proj(out.transpose(1, 2).flatten(2)), atol=1e-12, rtol=0)


def test_queries_keys_and_values_of_tokens_of_their_own():
    """In a window that holds the map as well."""
    attn, windowed = MultiheadAttention(12, 2).double(), ShiftedWindowAttention(12, 2, window_size=4).double()
    windowed.load_state_dict(attn.state_dict())
    parts = torch.randn(3, 2, 16, 12, dtype=torch.float64)
    q, k, v = (attn.qkv(part).chunk(3, -1)[i].unflatten(-1, (2, 6)).transpose(1, 2) for i, part in enumerate(parts))
    out = attn.proj(((q @ k.mT / 6**0.5).softmax(-1) @ v).transpose(1, 2).flatten(2))
    for module in (attn, windowed):
        torch.testing.assert_close(module(AttentionInput(*parts), (4, 4)), out, atol=1e-12, rtol=0)


BIAS = dict(type='irpe', mode='bias')
DRAWN = [
    'rpe', 'alibi2d', 'fire', dict(BIAS, on='qk', share_heads=False), dict(BIAS, on='q'),
    dict(BIAS, on='qk', reading='paper'), dict(BIAS, method='cross', ratio=20),
]  # fmt: skip


@torch.no_grad()
@pytest.mark.parametrize('pe_type', DRAWN, ids=str)
def test_what_is_drawn_is_the_mean_over_heads_of_what_is_added(pe_type):
    """Of the patches: prefix tokens are left out, and have no bias that follows from an offset."""
    arch = dict(embed_dims=16, num_layers=1, num_heads=2, feedforward_channels=8)
    attn = VisionTransformer(arch, (12, 20), 4, pe_type=pe_type, num_registers=2).blocks[0].attn
    for parameter in attn.parameters():
        torch.nn.init.normal_(parameter)
    for grid in ((3, 5), (4, 3)):
        tokens = torch.zeros(1, 2, 3 + grid[0] * grid[1], 8)
        added = attn.encodings[0].logits(attn, tokens, tokens, grid)[0]
        torch.testing.assert_close(attn.encodings[0].drawn(attn, grid), added[:, 3:, 3:].mean(0))
        if isinstance(attn.encodings[0], OffsetBias):
            assert not added[:, :3].any() and not added[:, :, :3].any()
            assert torch.equal(added[:, 3:, 3:], attn.encodings[0].bias(attn, grid))


VALUES = [dict(type='irpe', on='qkv'), dict(type='irpe', on='v', method='cross'), 'shaw', 'axial-deeplab']


@pytest.mark.parametrize('pe_type', ['none', 'rpe', *VALUES], ids=str)
def test_attention_dropout_drops_weights_at_its_rate(pe_type):
    """Equal weights are kept in whole numbers, each scaled up; in evaluation all are."""
    encodings = resolve_position(pe_type, 'default', 'layernorm').build_inside()
    attn = MultiheadAttention(12, 2, attn_drop_rate=0.4, encodings=encodings, slot=AttentionSlot(0, (4, 10)))
    for training in (True, False):
        sums = kept_weights(attn.train(training), torch.randn(6, 40, 12), (4, 10))
        kept = sums * 40 * (0.6 if training else 1)
        torch.testing.assert_close(kept, kept.round(), atol=1e-3, rtol=0)
        assert kept.std() > 1 and abs(kept.mean() - 24) < 1 if training else (kept.round() == 40).all()


@pytest.mark.parametrize('pe_type', VALUES, ids=str)
def test_what_values_get_is_of_the_dropped_weights(pe_type):
    """As in iRPE's public code: a table of ones doubles the sums."""
    encodings = resolve_position(pe_type, 'default', 'layernorm').build_inside()
    attn = MultiheadAttention(12, 2, attn_drop_rate=0.4, encodings=encodings, slot=AttentionSlot(0, (4, 10)))
    x = torch.randn(6, 40, 12)
    torch.manual_seed(0)
    plain = kept_weights(attn, x, (4, 10))
    for name, table in attn.named_parameters():
        if name.startswith('rpe_v.'):
            torch.nn.init.ones_(table)
    torch.manual_seed(0)
    tables = sum(name.startswith('rpe_v.') for name, _ in attn.named_parameters())
    torch.testing.assert_close(attn(x, (4, 10)), (1 + tables) * plain)


# arguments of training and of other grids

SMALL = dict(embed_dims=16, num_layers=2, num_heads=2, feedforward_channels=16)
OTHER_VALUES = dict(std=0.1, rescale=2.0, shift=0.25, anew=True, jitter=2.0)
WITH = dict(rope=dict(coordinates='normalised'))


@pytest.mark.parametrize(
    ('kind', 'name'),
    [
        (name, argument)
        for name, kind in POSITION_ENCODINGS.module_dict.items()
        for argument in kind.training_arguments
        if argument in inspect.signature(kind).parameters
    ],
)
def test_weights_are_taken_by_models_with_other_arguments_of_training_and_of_other_grids(kind, name):
    shared = dict(type=kind, **WITH.get(kind, {}))
    changed = shared | {name: OTHER_VALUES[name]}
    plain, other = (VisionTransformer(SMALL, (12, 20), 4, pe_type=pe_type) for pe_type in (shared, changed))
    records = [one.checkpoint_adapter.record(one) for one in (plain, other)]
    assert not mismatch(records[0], records[1]) and not mismatch(records[1], records[0])
    assert records[1]['config']['pe_type'] == changed


def test_sinusoids_anew_are_those_of_a_model_for_that_grid():
    for kind in each(('sincos1d', 'sincos2d', 'sincos2d-moco', 'sine')):
        anew, own = (
            VisionTransformer(SMALL, size, 4, pe_type=dict(type=kind, anew=True), pe_joining='lape')
            for size in (12, 20)
        )
        own.load_state_dict({**anew.state_dict(), 'pos_embed': own.pos_embed})
        images = torch.randn(2, 3, 20, 20)
        torch.testing.assert_close(anew.eval()(images)[0], own.eval()(images)[0])
    table = Sincos2d().table((2, 3), 8, 1)
    resized = Sincos2d().resize(table, (2, 3), (4, 6), 1, 'bicubic')
    assert not torch.allclose(resized, Sincos2d(anew=True).resize(table, (2, 3), (4, 6), 1, 'bicubic'))

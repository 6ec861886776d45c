"""Rotary encodings: timm's tables and attention, prefix tokens, recorded and half precision."""

import pytest
import torch
from timm.layers import RotaryEmbeddingCat, RotaryEmbeddingDinoV3, RotaryEmbeddingMixed, apply_rot_embed_cat
from torch import nn

from mmlape.models import VisionTransformer
from mmlape.models.position import AttentionSlot
from mmlape.models.position.rotary import AxialRotary, MixedRotary, rotation, turn

ARCH = dict(embed_dims=48, num_layers=2, num_heads=3, feedforward_channels=32)
HEADS, DIMS = 3, 16
GRIDS = [(4, 4), (3, 7)]


def attached(kind, grid, prefix=0):
    attn = nn.Module()
    attn.num_heads, attn.head_dims, attn.qkv = HEADS, DIMS, nn.Linear(1, 1)
    kind.name = 'rope'
    kind.attach(attn, AttentionSlot(0, grid, prefix))
    return attn


AXIAL = {
    'eva02': (
        dict(theta=10000, reference=(16, 16)),
        lambda: RotaryEmbeddingCat(DIMS, in_pixels=False, ref_feat_shape=[16, 16]),
        False,
    ),
    'a reference that is no square': (
        dict(theta=10000, reference=(8, 20)),
        lambda: RotaryEmbeddingCat(DIMS, in_pixels=False, ref_feat_shape=[8, 20]),
        False,
    ),
    'dinov3': (dict(coordinates='normalised', pairs='half'), lambda: RotaryEmbeddingDinoV3(DIMS), True),
    'index': (dict(), lambda: RotaryEmbeddingCat(DIMS, in_pixels=False, temperature=100), False),
}


@pytest.mark.parametrize('grid', GRIDS, ids=str)
@pytest.mark.parametrize('name', AXIAL)
def test_axial_is_timms(name, grid):
    options, build, half = AXIAL[name]
    q, k = torch.randn(2, 2, HEADS, grid[0] * grid[1], DIMS)
    kind = AxialRotary(**options)
    ours = kind.rotate(attached(kind, grid), q, k, grid)
    table = build().get_embed(list(grid))
    for mine, x in zip(ours, (q, k)):
        torch.testing.assert_close(mine, apply_rot_embed_cat(x, table, half=half), atol=5e-6, rtol=0)


DINOV3 = dict(type='rope', coordinates='normalised', pairs='half')
MOVES = {
    'none': {}, 'shift': dict(shift=0.3), 'jitter': dict(jitter=1.4), 'rescale': dict(rescale=2),
    'all': dict(shift=0.3, jitter=1.4, rescale=2),
}  # fmt: skip


@pytest.mark.parametrize('grid', GRIDS, ids=str)
@pytest.mark.parametrize('name', MOVES)
def test_moved_coordinates_are_timms(name, grid, monkeypatch):
    """In training, with the same drawn numbers: two for the shift, two for the jitter, one for the scale."""
    shares = dict(shift=[0.1, 0.7], jitter=[0.9, 0.2], rescale=[0.4])
    given, unused = MOVES[name], [torch.tensor([0.5])]
    draws = [torch.tensor(value) for key, value in shares.items() if key in given] or unused

    def draw(tensor, low, high):
        share = torch.cat([torch.tensor(value) for value in shares.values()]) if len(tensor) == 5 else draws.pop(0)
        return tensor.copy_(low + (high - low) * share)

    q, k = torch.randn(2, 2, HEADS, grid[0] * grid[1], DIMS)
    kind = AxialRotary(coordinates='normalised', pairs='half', **given)
    attn = attached(kind, grid).train()
    monkeypatch.setattr(torch.Tensor, 'uniform_', draw)
    ours = kind.rotate(attn, q, k, grid)
    theirs = RotaryEmbeddingDinoV3(DIMS, **{f'{key}_coords': value for key, value in given.items()}).train()
    table = theirs.get_embed(list(grid))
    assert not draws or draws is unused
    for mine, x in zip(ours, (q, k)):
        torch.testing.assert_close(mine, apply_rot_embed_cat(x, table, half=True), atol=2e-5, rtol=0)


def test_coordinates_move_in_training_only_and_by_the_seed():
    """Each layer draws numbers of its own, also where its activations are recomputed; files record none of it."""
    common = dict(arch=ARCH, img_size=16, patch_size=4)
    still = VisionTransformer(**common, pe_type=DINOV3)
    models = [VisionTransformer(**common, pe_type=dict(DINOV3, **MOVES['all']), with_cp=cp) for cp in (False, True)]
    images, gradients = torch.randn(2, 3, 16, 28), []
    for model in models:
        model.load_state_dict(still.state_dict())
        assert torch.equal(model.eval()(images)[0], still.eval()(images)[0])
        assert model.position.options() == still.position.options()
        torch.manual_seed(3)
        out = model.train()(images)[0]
        assert not torch.allclose(out, still.train()(images)[0], atol=1e-4)
        out.square().sum().backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    assert all(torch.equal(plain, recomputed) for plain, recomputed in zip(*gradients))
    first, second = (layer.attn for layer in models[0].blocks)
    q = torch.randn(1, HEADS, 5, DIMS)
    turned = [attn.encodings[0].rotate(attn, q, q, (2, 2))[0] for attn in (first, first, second)]
    assert not torch.allclose(turned[0], turned[1]) and not torch.allclose(turned[1], turned[2])


@pytest.mark.parametrize('grid', GRIDS, ids=str)
def test_mixed_is_timms(grid):
    kind, theirs = MixedRotary(), RotaryEmbeddingMixed(HEADS * DIMS, 2, HEADS)
    attn = attached(kind, grid)
    attn.freqs.data.copy_(theirs.freqs[:, 1])
    q, k = torch.randn(2, 2, HEADS, grid[0] * grid[1], DIMS)
    for mine, x in zip(kind.rotate(attn, q, k, grid), (q, k)):
        torch.testing.assert_close(mine, apply_rot_embed_cat(x, theirs.get_embed(list(grid))[1]), atol=2e-6, rtol=0)


def test_mixed_begins_as_timms_does():
    """Random directions a head, at right angles, of timm's lengths."""
    ours, theirs = attached(MixedRotary(), (2, 2)).freqs, RotaryEmbeddingMixed(HEADS * DIMS, 1, HEADS).freqs[:, 0]
    torch.testing.assert_close(ours.norm(dim=0), theirs.norm(dim=0))
    first, second = ours.chunk(2, dim=-1)
    torch.testing.assert_close((first * second).sum(0), torch.zeros(HEADS, DIMS // 4), atol=1e-6, rtol=0)
    assert ours[0, 0, 0] != ours[0, 1, 0]


@pytest.mark.parametrize('kind', [AxialRotary(), MixedRotary()], ids=['axial', 'mixed'])
def test_prefix_tokens_are_not_turned(kind):
    attn = attached(kind, (2, 3), prefix=2)
    q = torch.randn(1, HEADS, 8, DIMS)
    turned, _ = kind.rotate(attn, q, q, (2, 3))
    torch.testing.assert_close(turned[:, :, :3], q[:, :, :3], atol=0, rtol=0)  # patch (0, 0) has no angle either
    assert (turned[:, :, 3:] != q[:, :, 3:]).any(-1).all()


@pytest.mark.parametrize('pairs', ['interleaved', 'half'])
def test_recorded_rotations_are_the_same(pairs, monkeypatch):
    """Compilers and exports get real numbers instead of complex ones."""
    angles, x = torch.randn(1, 5, 8, dtype=torch.float64), torch.randn(2, 3, 5, 16, dtype=torch.float64)
    direct = turn(x, rotation(angles, pairs, x.dtype), pairs)
    monkeypatch.setattr(torch.jit, 'is_tracing', lambda: True)
    recorded = rotation(angles, pairs, x.dtype)
    assert not recorded.is_complex()
    torch.testing.assert_close(turn(x, recorded, pairs), direct, atol=1e-12, rtol=0)


@torch.no_grad()
@pytest.mark.parametrize('dtype', [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    'kind', [AxialRotary(), AxialRotary(pairs='half'), MixedRotary()], ids=['axial', 'half', 'mixed']
)
def test_half_precision_has_the_angles_and_products_of_float32(kind, dtype):
    """Also where the model's own parameters are half."""
    attn = attached(kind, (9, 40))
    for parameter in attn.parameters():
        parameter.copy_(parameter.to(dtype))
    q, k = torch.randn(2, 1, HEADS, 360, DIMS).to(dtype)
    expected = kind.rotate(attn, q.float(), k.float(), (9, 40))
    for found, exact in zip(kind.rotate(attn.to(dtype), q, k, (9, 40)), expected):
        assert torch.equal(found, exact.to(dtype))

"""Every encoding with every joining in four precisions, built so or cast: it runs, and float64 is the formula."""

import contextlib
import copy

import pytest
import torch
from each import each
from model_helpers import randomise
from test_tools import FAMILIES, flat, of_families
from torch import nn

from mmlape.errors import ConfigError
from mmlape.kinds import POSITION_ENCODINGS
from mmlape.models import TimmViTAdapter, VisionTransformer
from mmlape.models.grid import RESIZE_MODES, resize_map
from mmlape.models.position import joinings, kinds
from mmlape.models.position.base import AbsolutePosition, AttentionPosition, LayerPosition

ARCH = dict(embed_dims=16, num_layers=2, num_heads=2, feedforward_channels=32)
SIZE, PATCH, GRID = (24, 16), 8, (3, 2)
HALVES = (torch.bfloat16, torch.float16)
KINDS = [kind.name for base in (AbsolutePosition, AttentionPosition, LayerPosition) for kind in kinds(base)]


@contextlib.contextmanager
def default_dtype(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def build(kind: str, joining: str, **options) -> VisionTransformer:
    patches_only = joinings()[joining].patches_only
    options = dict(with_cls_token=not patches_only, out_type='featmap') | options
    return VisionTransformer(ARCH, SIZE, PATCH, pe_type=kind, pe_joining=joining, **options)


def pairs():
    """The encodings with the joinings that take them."""
    for kind in KINDS:
        for joining in joinings():
            with contextlib.suppress(ConfigError):
                build(kind, joining)
                yield kind, joining


def test_every_encoding_is_among_the_pairs():
    assert {kind for kind, _ in pairs()} == set(KINDS) == set(POSITION_ENCODINGS.module_dict)


@pytest.mark.parametrize(
    'chosen',
    [('default', 'lape'), pytest.param(joinings(), marks=pytest.mark.release)],
    ids=['two joinings', 'every joining'],
)
def test_a_model_that_is_cast_is_one_that_is_built_so(chosen):
    for kind, joining in each(pair for pair in pairs() if pair[1] in chosen):
        model = randomise(build(kind, joining))
        images = [torch.randn(1, 3, *size) for size in (SIZE, (40, 24))]
        with torch.no_grad():
            expected = [model(x)[0] for x in images]
            for dtype in (torch.float64, *HALVES):
                cast = copy.deepcopy(model).to(dtype)
                with default_dtype(dtype):
                    built = build(kind, joining).eval()
                tables = {key: value for key, value in built.named_buffers() if value.is_floating_point()}
                for key, value in tables.items():  # fixed, and so the formula's in either
                    assert value.dtype == dtype
                    torch.testing.assert_close(value, cast.get_buffer(key), rtol=1e-6, atol=1e-7)
                built.load_state_dict(cast.state_dict())
                for x, exact in zip(images, expected):
                    out = cast(x.to(dtype))[0]
                    assert torch.equal(out, built(x.to(dtype))[0]) and out.dtype == dtype
                    tolerance = 1e-5 if dtype == torch.float64 else 0.15
                    assert (out - exact).abs().max() <= tolerance * exact.abs().max(), (dtype, x.shape)


def test_biases_by_distance_are_exact_in_float64():
    """Written out from the docstrings' equations, with the views of lookhere left out of the comparison."""
    cells = torch.cartesian_prod(*(torch.arange(side, dtype=torch.float64) for side in (5, 7)))
    distance = torch.cdist(cells, cells, compute_mode='donot_use_mm_for_euclid_dist')
    for kind in each(('alibi2d', dict(type='alibi2d', slope=16), 'lookhere')):
        attn = build(kind, 'default').double().blocks[1].attn
        slopes = {'alibi2d': [2**-4, 2**-8], 'lookhere': [0.25, 0.25]}.get(str(kind), [1, 2**-4])
        q = torch.zeros(1, 2, 36, 8, dtype=torch.float64)
        bias = attn.encodings[0].logits(attn, q, q, (5, 7))[0, :, 1:, 1:]
        expected = -torch.tensor(slopes, dtype=torch.float64)[:, None, None] * distance
        seen = bias > -1e3
        assert (bias - expected)[seen].abs().max() < 1e-15 and seen.float().mean() > 0.5


def test_fixed_tables_are_exact_in_a_model_of_float64():
    with default_dtype(torch.float64):
        table = build('sincos2d', 'default').pos_embed[0, 1:]
    column, row = torch.arange(6) % 2, torch.arange(6) // 2
    for half, position in ((table[:, :8], column), (table[:, 8:], row)):
        angle = position[:, None].double() / 10000.0 ** (torch.arange(4, dtype=torch.float64) / 4)
        assert (half[:, ::2] - angle.sin()).abs().max() < 1e-15 and (half[:, 1::2] - angle.cos()).abs().max() < 1e-15


def test_every_resize_of_half_values_is_that_of_float32():
    values = torch.randn(12, 5)
    for mode in each(mode for mode in RESIZE_MODES if mode != 'tile'):
        for dtype in HALVES:
            half = values.to(dtype)
            for size in ((6, 5), (2, 2)):
                expected = resize_map(half.float(), (4, 3), size, mode).to(dtype)
                assert torch.equal(resize_map(half, (4, 3), size, mode), expected)
            model = build('learnable', 'lape', interpolate_mode=mode).to(dtype)
            larger = VisionTransformer(ARCH, 32, PATCH, pe_joining='lape', interpolate_mode=mode, out_type='featmap')
            larger.load_state_dict(model.state_dict())
            assert model(torch.randn(1, 3, 40, 24, dtype=dtype))[0].isfinite().all()


@of_families
def test_half_weights_run_under_autocast_on_the_cpu(names):
    for name in each(names):
        model = FAMILIES[name]().bfloat16().eval()
        with torch.no_grad(), torch.autocast('cpu', torch.bfloat16):
            assert all(out.isfinite().all() for out in flat(model(torch.randn(2, 3, 32, 48))))


def frozen(frozen_dtype: str | None) -> nn.Module:
    vit = dict(
        model_name='vit_small_patch16_dinov3', model_args=dict(embed_dim=24, depth=4, num_heads=3), frozen=True,
        frozen_dtype=frozen_dtype, patch_norm='dual',
    )  # fmt: skip
    torch.manual_seed(0)
    return TimmViTAdapter(vit, mode='read-only', conv_inplane=8, deform_num_heads=3).eval()


def test_a_frozen_vit_keeps_its_precision_through_casts():
    x = torch.randn(2, 3, 64, 64)
    exact = frozen(None)(x)[0]
    casts = (nn.Module.half, nn.Module.bfloat16, nn.Module.double, lambda model: model.to('cpu', torch.float16))
    for frozen_dtype in each(('bf16', 'fp16')):
        model = frozen(frozen_dtype)
        names, weights = list(model.state_dict()), copy.deepcopy(model.vit.state_dict())
        expected = model(x)[0]
        assert not torch.equal(expected, exact) and torch.allclose(expected, exact, atol=0.1)
        for cast in casts:
            model = copy.deepcopy(cast(model))
            dtype = model.level_embed.dtype
            out = model(x.to(dtype))[0]
            assert out.dtype == dtype and torch.allclose(out.float(), exact, atol=0.15)
            assert list(model.state_dict()) == names
            assert all(torch.equal(value, weights[key]) for key, value in model.vit.state_dict().items())
        assert torch.allclose(frozen(frozen_dtype).double()(x.double())[0].float(), expected, atol=1e-4)

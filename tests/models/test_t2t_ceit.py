"""T2T-ViT and CeiT: what golden data of the public code does not show, such as sizes that it cannot take."""

import pytest
import torch
import torch.nn.functional as F
from each import each
from model_helpers import TOKEN_ARCHS, kept_weights, meta_device, new_token_vit, randomise
from torch import nn

from mmlape.errors import ConfigError
from mmlape.projects import CeiT, T2TViT
from mmlape.projects.t2t import TokenPerformer
from mmlape.registry import POSITION_ENCODINGS

FAMILIES = pytest.mark.parametrize('cls', TOKEN_ARCHS)
STEMS = {T2TViT: 'tokens_to_token', CeiT: 'i2t'}
LINEAR = {T2TViT: 'project', CeiT: 'proj'}


@pytest.mark.parametrize(
    ('cls', 'arch', 'joining', 'count'),
    [
        (T2TViT, 't2t-vit-7', 'default', 4_310_222),
        (T2TViT, 't2t-vit-7', 'lape', 4_313_806),
        (CeiT, 'tiny', 'default', 6_356_904),
        (CeiT, 'tiny', 'lape', 6_361_512),
        (CeiT, 'small', 'default', 24_204_840),
        (CeiT, 'small', 'lape', 24_214_056),
    ],
)
def test_parameters_of_the_public_code_with_a_1000_class_head(cls, arch, joining, count):
    """T2T-ViT's frozen parameters, 54,528 in all, are buffers here."""
    model = cls(arch, pe_joining=joining)
    fixed = [name for name, _ in model.named_buffers() if name.endswith(('pos_embed', '.w'))]
    frozen = sum(model.get_buffer(name).numel() for name in fixed)
    assert frozen == (54_528 if cls is T2TViT else 0)
    assert sum(p.numel() for p in model.parameters()) + frozen + 1000 * (model.embed_dims + 1) == count
    assert all(p.requires_grad for p in model.parameters())


@pytest.mark.parametrize(
    ('arch', 'millions'), [('t2t-vit-10', 5.9), ('t2t-vit-12', 6.9), ('t2t-vit-14', 21.5), ('t2t-vit-19', 39.2)]
)
def test_larger_t2t_vits_have_the_public_readmes_sizes(arch, millions):
    with meta_device():
        model = T2TViT(arch)
    total = sum(value.numel() for value in model.state_dict().values()) + 1000 * (model.embed_dims + 1)
    assert total / 1e6 == pytest.approx(millions, abs=0.06)


# sizes and outputs


@FAMILIES
@pytest.mark.parametrize('size', [(16, 16), (17, 33), (61, 16), (48, 48)])
@pytest.mark.parametrize('patch_norm', ['none', 'dual'])
def test_any_size_from_16_pixels_on(cls, size, patch_norm):
    """A feature map has ceil(side / 16) cells a side, and missing pixels are zeros on the right and the bottom."""
    model = randomise(new_token_vit(cls, out_type='featmap', pe_joining='lape', patch_norm=patch_norm))
    image = torch.randn(2, 3, *size)
    out = model(image)[0]
    grid = model.grid_of(size)
    assert grid == tuple(-(-side // 16) for side in size)
    assert out.shape == (2, 16, *grid) and out.isfinite().all()
    padded = F.pad(image, (0, 16 * grid[1] - size[1], 0, 16 * grid[0] - size[0]))
    torch.testing.assert_close(model(padded)[0], out)
    assert out.stride() == torch.empty(out.shape).stride()


@FAMILIES
def test_smaller_images_are_refused(cls):
    with pytest.raises(ValueError, match='an image of 15x40 pixels is smaller than one patch of 16x16'):
        new_token_vit(cls)(torch.randn(1, 3, 15, 40))


@FAMILIES
def test_out_types(cls):
    source, image = randomise(new_token_vit(cls, out_type='raw', out_indices=(2, 0))), torch.randn(2, 3, 48, 32)
    last, first = source(image)
    found = {}
    for kind in ('featmap', 'avg_featmap', 'cls_token'):
        model = new_token_vit(cls, out_type=kind, out_indices=(-1, 0)).eval()
        model.load_state_dict(source.state_dict(), strict=kind != 'cls_token' or cls is T2TViT)
        found[kind] = model(image)
    patches = last[:, 1:]
    torch.testing.assert_close(found['featmap'][0], patches.transpose(1, 2).unflatten(2, (3, 2)))
    torch.testing.assert_close(found['avg_featmap'][0], patches.mean(1))
    torch.testing.assert_close(found['cls_token'][1], first[:, 0])
    if cls is T2TViT:  # CeiT's is another token, see the golden data
        torch.testing.assert_close(found['cls_token'][0], last[:, 0])


def test_only_a_class_token_of_ceit_needs_class_attention():
    names = {kind: set(new_token_vit(CeiT, out_type=kind).state_dict()) for kind in ('cls_token', 'raw', 'featmap')}
    assert names['raw'] == names['featmap']
    added = {name.partition('.')[0] for name in names['cls_token'] - names['raw']}
    assert added == {'lca', 'pos_layer_embed'}


# position encodings


JOININGS = {
    'sincos1d': ['default', 'shared', 'lape', 'lape-shared'],
    'learnable': ['default', 'shared', 'unshared', 'lape', 'lape-shared'],
    'rpe': ['default', 'lape'],
    'none': ['default'],
}


@FAMILIES
def test_every_parameter_gets_a_gradient(cls):
    """Zero only where the architecture has it so: CeiT's class token leaves the last layer's convolutions unread."""
    for pe_type, joining in each([(k, v) for k, values in JOININGS.items() for v in values]):
        for out_type in ('cls_token', 'featmap'):
            model = randomise(new_token_vit(cls, out_type=out_type, pe_type=pe_type, pe_joining=joining)).train()
            out = model(torch.randn(2, 3, 48, 48))[0]
            (out * torch.randn_like(out)).sum().backward()
            grads = {name: p.grad for name, p in model.named_parameters()}
            assert [name for name, grad in grads.items() if grad is None] == []
            zero = [name for name, grad in grads.items() if not grad.any()]
            unread = ('blocks.2.leff.', 'blocks.2.attn.relative_position_bias_table', 'blocks.2.attn.pe_norm.')
            assert [n for n in zero if out_type == 'featmap' or not n.startswith(unread)] == []


@FAMILIES
def test_every_registered_kind_runs_on_another_grid(cls):
    POSITION_ENCODINGS.import_from_location()
    for kind in POSITION_ENCODINGS.module_dict:
        model = new_token_vit(cls, out_type='featmap', pe_type=kind)
        out = model(torch.randn(2, 3, 32, 64))[0]
        (out * torch.randn_like(out)).sum().backward()
        assert out.shape == (2, 16, 2, 4) and all(p.grad is not None for p in model.parameters()), kind


@FAMILIES
@pytest.mark.parametrize('key', ['pe_type', 'pe_joining', 'pe_norm', 'patch_norm', 'out_type', 'arch'])
def test_unknown_names_are_refused_with_the_choices(cls, key):
    options = dict(arch=TOKEN_ARCHS[cls]) | {key: 'nonsense'}
    with pytest.raises(ConfigError, match=f"{key}='nonsense'.*choose"):
        cls(img_size=48, **options)


@pytest.mark.parametrize(
    ('cls', 'kwargs', 'message'),
    [
        (T2TViT, dict(tokens_type='convolution'), 'choose one of: performer, transformer'),
        (T2TViT, dict(pe_joining='unshared'), 'cannot join .* choose pe_joining from: default, shared, lape'),
        (CeiT, dict(pe_type='none', pe_joining='lape'), 'choose pe_joining from: default'),
        (T2TViT, dict(patch_norm='post-posemb'), 'choose one of: none, dual, pre, post, learnable-only, no-learnable'),
        (CeiT, dict(patch_norm='post-posemb'), 'choose one of: none, dual, pre, post, learnable-only, no-learnable'),
        (CeiT, dict(out_indices=(0, 3)), 'there is no layer 3'),
        (CeiT, dict(pe_norm='scalar'), "pe_norm='scalar' would have no effect"),
    ],
)
def test_what_cannot_work_is_refused_with_the_choices(cls, kwargs, message):
    with pytest.raises(ConfigError, match=message):
        new_token_vit(cls, **kwargs)


@FAMILIES
def test_a_fixed_table_is_a_buffer_and_a_resized_one_serves_other_grids(cls):
    model = new_token_vit(cls, pe_type='sincos1d', pe_joining='lape')
    assert 'pos_embed' in dict(model.named_buffers())
    positions = list(model.layer_positions((5, 2)))
    assert len(positions) == 3 and all(one.shape == (10, 16) for one in positions)
    norm = model.blocks[0].pe_norm
    torch.testing.assert_close(positions[0], norm(model.position_stream((5, 2), 0))[0])


# Dual PatchNorm


@FAMILIES
def test_dual_patch_norm_stands_around_the_last_linear_map(cls):
    """Over the values of a window of T2T-ViT, over all stem channels of 4x4 cells in CeiT; eps is the backbone's."""
    model = randomise(new_token_vit(cls, out_type='raw', patch_norm='dual'))
    stem, image = getattr(model, STEMS[cls]), torch.randn(2, 3, 32, 48)
    values, linear = [], getattr(stem, LINEAR[cls])
    stem.norm0.register_forward_hook(lambda module, args, out: values.append(args[0]))
    tokens, grid = stem(image)
    dims, eps = (72, 1e-5) if cls is T2TViT else (128, 1e-6)
    values = [values[0].flatten(1, -2)]  # rows and columns of patches
    assert grid == (2, 3) and values[0].shape == (2, 6, dims)
    if cls is CeiT:
        cells = F.unfold(stem.backbone(image), 4, stride=4).transpose(1, 2)
        torch.testing.assert_close(values[0], cells)
    x = F.layer_norm(values[0], (dims,), stem.norm0.weight, stem.norm0.bias, eps)
    x = F.linear(x, linear.weight.flatten(1), linear.bias)
    torch.testing.assert_close(tokens, F.layer_norm(x, (16,), stem.norm1.weight, stem.norm1.bias, eps))


@FAMILIES
@pytest.mark.parametrize('patch_norm', ['pre', 'post', 'learnable-only', 'no-learnable', 'rms'])
def test_every_patch_norm_of_a_linear_map_runs(cls, patch_norm):
    assert new_token_vit(cls, patch_norm=patch_norm)(torch.randn(2, 3, 32, 32))[0].shape == (2, 16)


# training


@FAMILIES
@pytest.mark.parametrize('training', [False, True])
def test_checkpointing_changes_memory_and_nothing_else(cls, training):
    """Batch statistics included, which a second forward pass would move twice."""
    image, found = torch.randn(2, 3, 48, 48), []
    for with_cp in (False, True):
        torch.manual_seed(3)
        model = randomise(new_token_vit(cls, pe_joining='lape', with_cp=with_cp, drop_path_rate=0.3)).train(training)
        torch.manual_seed(4)
        out = model(image)[0]
        out.square().sum().backward()
        buffers = {name: value.clone() for name, value in model.named_buffers()}
        found.append([out, *(p.grad for p in model.parameters()), *buffers.values()])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


@FAMILIES
def test_drop_path_rates_grow_linearly_to_the_maximum(cls):
    model = new_token_vit(cls, drop_path_rate=0.4)
    rates = [getattr(layer.drop_path, 'drop_prob', 0.0) for layer in model.blocks]
    assert rates == pytest.approx([0, 0.2, 0.4])
    assert not hasattr(getattr(model, 'lca', None), 'drop_path')


@FAMILIES
def test_drop_path_is_on_both_branches_of_a_layer(cls):
    """A layer of which it leaves nothing is the identity."""

    class Nothing(nn.Module):
        def forward(self, x):
            return 0 * x

    layer = randomise(new_token_vit(cls, drop_path_rate=0.4)).blocks[1]
    layer.drop_path, x = Nothing(), torch.randn(2, 7, 16)
    torch.testing.assert_close(layer(x, None, (2, 3))[0], x)


def test_dropout_of_performers_is_a_tenth_and_that_of_the_tokens_an_argument():
    model = new_token_vit(T2TViT, drop_rate=0.3)
    rates = {name: module.p for name, module in model.named_modules() if isinstance(module, nn.Dropout)}
    for name, rate in rates.items():
        assert rate == (0.1 if name.startswith('tokens_to_token.') else 0.3)
    assert {name for name in rates if 'attention2' in name} == {
        'tokens_to_token.attention2.drop',
        'tokens_to_token.attention2.mlp.3',
    }


@FAMILIES
def test_attention_of_layers_drops_its_output_and_not_its_weights(cls):
    """In LCA too, whose FFN drops as well."""
    model = new_token_vit(cls, drop_rate=0.4).train()
    found = [(layer.attn, ((3, 3),)) for layer in model.blocks]
    found += [(model.lca.attn, ())] if cls is CeiT else []
    for attn, args in found:
        attn.qkv.bias = attn.qkv.bias if cls is CeiT else nn.Parameter(torch.zeros(48))
        out = kept_weights(attn, torch.randn(50, 10, 16), *args)
        scaled = (out * 0.6).round(decimals=4)
        assert set(scaled.unique().tolist()) == {0, 1} and abs(scaled.mean() - 0.6) < 0.1
    parts = [model.pos_drop, *([model.lca.feedforward.drop] if cls is CeiT else [])]
    assert [part.p for part in parts] == [0.4] * len(parts)


@FAMILIES
def test_frozen_stages(cls):
    model = new_token_vit(cls, frozen_stages=2, pe_joining='lape', drop_path_rate=0.5).train()
    trained = {name.partition('.')[0] for name, p in model.named_parameters() if p.requires_grad}
    later = {'lca', 'pos_layer_embed'} if cls is CeiT else set()
    assert trained == {'blocks', 'norm'} | later
    assert [layer.training for layer in model.blocks] == [False, False, True] and not model.pos_drop.training
    assert not any(part.training for part in getattr(model, STEMS[cls]).modules())


@FAMILIES
def test_layer_depths(cls):
    model = new_token_vit(cls, pe_joining='lape')
    depth = lambda name: model.get_layer_depth(f'backbone.{name}', 'backbone.')  # noqa: E731
    first = ['cls_token', 'pos_embed', f'{STEMS[cls]}.{LINEAR[cls]}.weight']
    assert {depth(name) for name in first} == {(0, 5)}
    assert depth('blocks.1.pe_norm.weight') == depth('blocks.1.attn.proj.bias') == (2, 5)
    last = ['norm.weight', *(['lca.attn.qkv.weight', 'pos_layer_embed'] if cls is CeiT else [])]
    assert {depth(name) for name in last} == {(4, 5)}
    assert model.part_of('cls_token') == 'position' and model.part_of(first[-1]) == 'patch_embed'


@FAMILIES
def test_initial_values(cls):
    model = cls('t2t-vit-7' if cls is T2TViT else 'tiny', pe_joining='lape')
    for name, parameter in model.named_parameters():
        module = model.get_submodule(name.rpartition('.')[0]) if '.' in name else None
        if isinstance(module, nn.Linear):
            assert (
                parameter.std().item() == pytest.approx(0.02, rel=0.1) if parameter.ndim > 1 else not parameter.any()
            )
        elif isinstance(module, nn.LayerNorm):
            assert (parameter == (1.0 if name.endswith('weight') else 0.0)).all()
    assert model.cls_token.std().item() == pytest.approx(0.02, rel=0.2)
    if cls is CeiT:
        assert not model.pos_layer_embed.any()


# performers


def test_random_features_are_orthogonal_with_the_norm_of_a_gaussians():
    w = TokenPerformer(27, 64).w
    torch.testing.assert_close(w @ w.mT, 32.0 * torch.eye(32), atol=1e-4, rtol=0)


def test_a_performer_is_softmax_attention_on_average():
    """The mean of its weights over many random features; the estimate is unbiased before the normalisation."""
    torch.manual_seed(0)
    layer, q, k = TokenPerformer(8, 4).double(), *(0.3 * torch.randn(2, 1, 5, 4, dtype=torch.float64))
    estimates = []
    for _ in range(4000):
        layer.w = nn.init.orthogonal_(torch.empty(4, 4, dtype=torch.float64))
        layer.w *= torch.randn(4, 4, dtype=torch.float64).norm(dim=1, keepdim=True)
        estimates.append(layer._features(q) @ layer._features(k).mT)
    torch.testing.assert_close(torch.stack(estimates).mean(0), (q @ k.mT).exp(), atol=0.03, rtol=0.03)


@pytest.mark.parametrize('dtype', [torch.bfloat16, torch.float16])
def test_performers_compute_exponentials_in_float32(dtype):
    """Features of e^15, which float16 cannot hold, and sums that bfloat16 would round away."""
    torch.manual_seed(0)
    layer = randomise(TokenPerformer(27, 64))
    with torch.no_grad():  # queries and keys along a row of w, where its exponent is largest
        layer.kqv.weight.mul_(0.01)
        layer.kqv.bias.copy_(torch.cat((layer.w[0], layer.w[1], torch.randn(64))) * 0.95)
        x = torch.randn(2, 40, 27)
        exact = layer(x)
        with torch.autocast('cpu', dtype):
            out = layer(x)
    assert layer._features(layer.w).max() > 65504
    assert out.isfinite().all()
    torch.testing.assert_close(out.float(), exact, atol=0.1, rtol=0.1)

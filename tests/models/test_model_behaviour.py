"""What outputs in evaluation mode do not show: dropouts and drop paths, eps of norms, initial values, weight decay.

Dropouts are checked where they act, on the tensors before and after them in one and the same forward pass.
"""

import math
import re
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from each import each
from model_helpers import DEEP_ARCH, is_normal, is_uniform, meta_device, new_vit, randomise
from model_helpers import new_adapter as adapter
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from mmlape.models import DistilledVisionTransformer, SwinTransformer, VisionTransformer, ViTAdapter
from mmlape.projects import CeiT, CompactTransformer, T2TViT

WINDOWS = dict(window_attn=[True, True, False, True], window_size=3)
RATE = 0.4


def vit(cls=VisionTransformer, **kwargs) -> nn.Module:
    return new_vit(cls, DEEP_ARCH, **kwargs)


def trace(model: nn.Module, image: Tensor) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the first input and the first output of every module in one forward pass, by name."""
    inputs, outputs, hooks = {}, {}, []
    for name, module in model.named_modules():

        def record(module, args, out, name=name):
            inputs[name] = args[0]
            outputs[name] = out[0] if isinstance(out, tuple) else out

        hooks.append(module.register_forward_hook(record))
    with torch.no_grad():
        model(image)
    for hook in hooks:
        hook.remove()
    return inputs, outputs


# archs

COMPACT = {2: (128, 2), 4: (128, 2), 6: (256, 4), 7: (256, 4)}
NAMED = {  # width, layers, heads in the public code
    VisionTransformer: {'deit-tiny': (192, 12, 3), 'deit-small': (384, 12, 6), 'deit-base': (768, 12, 12)},
    T2TViT: {
        **{f't2t-vit-{depth}': (256, depth, 4) for depth in (7, 10, 12)},
        't2t-vit-14': (384, 14, 6), 't2t-vit-19': (448, 19, 7), 't2t-vit-24': (512, 24, 8),
    },
    CeiT: {'tiny': (192, 12, 3), 'small': (384, 12, 6), 'base': (768, 12, 12)},
    CompactTransformer: {
        **{f'{name}-{n}/4': (dims, n, heads) for n, (dims, heads) in COMPACT.items() for name in ('vit-lite', 'cvt')},
        'cct-2/3x2': (128, 2, 2), 'cct-6/3x1': (256, 6, 4), 'cct-7/3x1': (256, 7, 4), 'cct-14/7x2': (384, 14, 6),
    },
    SwinTransformer: {
        'tiny': (96, 12, [3] * 2 + [6] * 2 + [12] * 6 + [24] * 2),
        'small': (96, 24, [3] * 2 + [6] * 2 + [12] * 18 + [24] * 2),
        'base': (128, 24, [4] * 2 + [8] * 2 + [16] * 18 + [32] * 2),
    },
}  # fmt: skip


def test_heads_of_a_named_arch():
    """They leave no trace in parameters and their count."""
    for cls, name in each([(cls, name) for cls, names in NAMED.items() for name in names]):
        dims, depth, heads = NAMED[cls][name]
        with meta_device():
            model = cls(name)
        assert (model.embed_dims, model.num_layers) == (dims, depth)
        found = [layer.attention.num_heads for layer in model.all_layers]
        assert found == (heads if isinstance(heads, list) else [heads] * depth)


# dropouts


def is_dropped_out(before: Tensor, after: Tensor, rate: float) -> bool:
    """Return whether every element is either zero or scaled up by 1 / (1 - rate), in the right proportion."""
    zero = after == 0
    assert (before != 0).all() and before.numel() > 500
    torch.testing.assert_close(after[~zero], before[~zero] / (1 - rate))
    return abs(zero.float().mean().item() - rate) < 0.1


def dropout_places(inputs: dict[str, Tensor], outputs: dict[str, Tensor]) -> dict[str, tuple[Tensor, Tensor]]:
    """Return the tensors before and after each elementwise dropout: of the embedded tokens and in a layer."""
    layer = 'blocks.2'
    return {
        'pos_drop': (inputs['pos_drop'], inputs['blocks.0.norm1']),
        'attention output': (outputs[f'{layer}.attn.proj'], outputs[f'{layer}.attn']),
        'hidden units': (F.gelu(outputs[f'{layer}.mlp.fc1']), inputs[f'{layer}.mlp.fc2']),
        'FFN output': (outputs[f'{layer}.mlp.fc2'], outputs[f'{layer}.mlp']),
    }


@pytest.mark.parametrize('kwargs', [dict(), dict(pe_joining='lape'), dict(pe_type='rpe')], ids=str)
def test_dropout_acts_in_training_only(kwargs):
    model, image = randomise(vit(drop_rate=RATE, **kwargs)), torch.randn(4, 3, 32, 32)
    for before, after in dropout_places(*trace(model.train(), image)).values():
        assert is_dropped_out(before, after, RATE)
    for before, after in dropout_places(*trace(model.eval(), image)).values():
        torch.testing.assert_close(after, before)
    model = randomise(vit(attn_drop_rate=RATE, drop_path_rate=RATE, **kwargs))
    for before, after in dropout_places(*trace(model.train(), image)).values():
        torch.testing.assert_close(after, before)


@pytest.mark.parametrize(
    'build',
    [
        lambda **kwargs: vit(**kwargs),
        lambda **kwargs: vit(pe_type='rpe', pe_joining='lape', **kwargs),
        lambda **kwargs: adapter(**WINDOWS, **kwargs),
    ],
    ids=['global', 'relative', 'windowed'],
)
def test_attention_dropout_acts_on_the_weights_in_training_only(build):
    """With all values one, attention returns the sum of its weights: one in evaluation, and random in training."""
    model = randomise(build(attn_drop_rate=RATE))
    with torch.no_grad():
        for block in model.blocks:
            values = block.attn.qkv.out_features // 3 * 2
            block.attn.qkv.weight[values:] = 0
            block.attn.qkv.bias[values:] = 1
    size = (64, 96) if isinstance(model, ViTAdapter) else (32, 32)
    image = torch.randn(32, 3, *size)
    for layer in range(4):
        windowed = isinstance(model, ViTAdapter) and WINDOWS['window_attn'][layer]
        sums = [trace(model.train(mode), image)[0][f'blocks.{layer}.attn.proj'] for mode in (True, True, False)]
        assert not torch.equal(sums[0], sums[1])
        if not windowed:  # a window's padding has zeros for values
            torch.testing.assert_close(sums[2], torch.ones_like(sums[2]))
        assert sums[0].std(0).min() > 0 and (sums[0] - sums[2]).abs().max() > 0.05
        torch.testing.assert_close(sums[0].mean(), sums[2].mean(), atol=0.05, rtol=0)
        heads = sums[0].unflatten(-1, (3, -1))
        torch.testing.assert_close(heads, heads[..., :1].expand_as(heads))


@pytest.mark.parametrize('build', [vit, adapter])
def test_without_rates_training_changes_nothing_but_batch_statistics(build):
    model = randomise(build())
    for module in model.modules():
        if isinstance(module, _BatchNorm):
            module.momentum = 0
    image = torch.randn(2, 3, 64, 64)
    inputs, _ = trace(model.train(), image)
    again, _ = trace(model, image)
    expected, _ = trace(model.eval(), image)
    for name in inputs:
        assert torch.equal(inputs[name], again[name])
    if build is vit:
        torch.testing.assert_close(inputs['norm'], expected['norm'])


# drop paths


def extractors(model: ViTAdapter) -> dict[str, nn.Module]:
    pattern = re.compile(r'interactions\.\d+\.(extractor|extra_extractors\.\d+)')
    return {name: module for name, module in model.named_modules() if pattern.fullmatch(name)}


def kept(branch: Tensor, out: Tensor, rate: float) -> Tensor:
    """Return which images keep a branch, and check that they get all of it, scaled up, and the others nothing."""
    keep = out.flatten(1).abs().amax(1) > 1e-4
    torch.testing.assert_close(out[keep], branch[keep] / (1 - rate), atol=2e-4, rtol=1e-3)
    return keep


@pytest.mark.parametrize('kwargs', [dict(), dict(pe_joining='lape', layer_scale_init_value=0.1)], ids=str)
def test_drop_path_drops_both_branches_of_a_layer_each_by_itself(kwargs):
    model, image = randomise(vit(drop_path_rate=RATE, **kwargs)), torch.randn(100, 3, 32, 32)
    inputs, outputs = trace(model.train(), image)
    block = model.blocks[3]
    gammas = [1 if gamma is None else gamma.detach() for gamma in (block.gamma1, block.gamma2)]
    start, middle, end = inputs['blocks.3.norm1'], inputs['blocks.3.norm2'], inputs['norm']
    attention = kept(outputs['blocks.3.attn'] * gammas[0], middle - start, RATE)
    ffn = kept(outputs['blocks.3.mlp'] * gammas[1], end - middle, RATE)
    for keep in (attention, ffn):
        assert 0.4 < keep.float().mean() < 0.8
    assert not torch.equal(attention, ffn)
    first = inputs['blocks.0.norm2'] - inputs['blocks.0.norm1']
    assert kept(outputs['blocks.0.attn'] * (1 if block.gamma1 is None else model.blocks[0].gamma1), first, 0).all()
    inputs, outputs = trace(model.eval(), image)
    middle, end = inputs['blocks.3.norm2'], inputs['norm']
    assert kept(outputs['blocks.3.attn'] * gammas[0], middle - inputs['blocks.3.norm1'], 0).all()
    assert kept(outputs['blocks.3.mlp'] * gammas[1], end - middle, 0).all()


def test_drop_path_of_an_extractor_drops_its_ffn_only():
    model, image = randomise(adapter(drop_path_rate=RATE)), torch.randn(40, 3, 32, 64)
    names = list(extractors(model))
    for training in (True, False):
        inputs, outputs = trace(model.train(training), image)
        for name in names:
            middle = inputs[f'{name}.ffn_norm']
            assert kept(outputs[f'{name}.attn'], middle - inputs[name], 0).all()
            keep = kept(outputs[f'{name}.ffn'], outputs[name] - middle, RATE if training else 0)
            assert 0.3 < keep.float().mean() < 0.9 if training else keep.all()


# norms


def eps_of(model: nn.Module, kind) -> dict[str, float]:
    return {name: module.eps for name, module in model.named_modules() if isinstance(module, kind)}


def layer_names(*parts: str) -> set[str]:
    return {f'blocks.{i}.{part}' for i in range(4) for part in parts}


def test_eps_of_the_vits_norms():
    """That of the default is golden data's."""
    norm_cfg, eps = dict(type='LN', eps=1e-3), 1e-3
    model = vit(pe_joining='lape', patch_norm='dual', norm_cfg=norm_cfg)
    names = {'norm', 'patch_embed.norm0', 'patch_embed.norm1', *layer_names('norm1', 'norm2', 'pe_norm')}
    assert eps_of(model, nn.LayerNorm) == dict.fromkeys(names, eps)
    assert vit(patch_norm='post-posemb', norm_cfg=norm_cfg).norm_pre.eps == eps
    for kind in ('norm', 'scalar-norm', 'channel-norm'):
        model = vit(pe_joining='lape-shared', pe_norm=kind, norm_cfg=norm_cfg)
        assert {block.pe_norm.eps for block in model.blocks} == {eps}
    assert {
        model.eps for model in vit(patch_norm='rms', norm_cfg=norm_cfg).patch_embed.children() if hasattr(model, 'eps')
    } == {eps}


def test_eps_of_the_adapters_norms():
    """That of the default is golden data's."""
    norm_cfg, eps = dict(type='LN', eps=1e-3), 1e-3
    model = adapter(pe_joining='lape', norm_cfg=norm_cfg)
    names = layer_names('norm1', 'norm2', 'pe_norm')
    names |= {f'interactions.{i}.injector.{part}' for i in range(4) for part in ('query_norm', 'feat_norm')}
    names |= {f'{name}.{part}' for name in extractors(model) for part in ('query_norm', 'feat_norm', 'ffn_norm')}
    assert eps_of(model, nn.LayerNorm) == dict.fromkeys(names, eps)
    batch_norms = {f'norm{i}' for i in range(1, 5)} | {f'spm.conv{i}.1' for i in (2, 3, 4)}
    batch_norms |= {f'spm.stem.{i}' for i in (1, 4, 7)}
    assert eps_of(model, _BatchNorm) == dict.fromkeys(batch_norms, 1e-5)
    for module in model.modules():
        if isinstance(module, _BatchNorm):
            assert isinstance(module, nn.SyncBatchNorm) and module.momentum == 0.1


# initial values


STARTS = {
    'deit-tiny': partial(DistilledVisionTransformer, pe_joining='lape', patch_norm='dual'),
    'deit-tiny, adapter': partial(ViTAdapter, pe_joining='lape'),
    't2t-vit-7': partial(T2TViT, pe_joining='lape'),
    'tiny, CeiT': partial(CeiT, pe_joining='lape'),
    'tiny, Swin': SwinTransformer,
    'vit-lite-7/4': CompactTransformer,
}


def test_linear_maps_start_near_zero_and_norms_change_nothing():
    """A deviation of 0.02 and no bias; a stem of patches is PyTorch's convolution."""
    for name in each(STARTS):
        model = STARTS[name](name.partition(',')[0])
        for part, module in model.named_modules():
            if isinstance(module, nn.Linear) and not part.startswith('interactions.'):
                assert is_normal(module.weight, 0.02), part
                assert module.bias is None or not module.bias.any()
            elif isinstance(module, (nn.LayerNorm, _BatchNorm)):
                assert (module.weight == 1).all() and not module.bias.any()
            if isinstance(module, _BatchNorm):
                assert not module.running_mean.any() and (module.running_var == 1).all()
        for token in model.prefix_tokens:
            value = getattr(model, token)
            assert is_normal(value, 0.02) if name != 'vit-lite-7/4' else not value.any()
        if name.startswith('deit'):
            weight, bias = model.patch_embed.proj.parameters()
            bound = weight[0].numel() ** -0.5
            assert is_uniform(weight, bound) and is_uniform(bias, bound)
        elif 'CeiT' in name:
            assert not model.pos_layer_embed.any()
        elif 'Swin' in name:
            assert is_normal(model.layers[0].blocks[0].attn.relative_position_bias_table, 0.02)


@pytest.mark.parametrize('joining', ['default', 'lape', 'unshared'])
def test_initial_values_of_a_vit(joining):
    model = DistilledVisionTransformer('deit-tiny', pe_joining=joining)
    tables = [value for name, value in model.named_parameters() if name.startswith('pos_embed')]
    assert len(tables) == (12 if joining == 'unshared' else 1)
    assert all(is_normal(value, 0.02) for value in tables)
    assert model.blocks[0].gamma1 is None and model.blocks[0].gamma2 is None


def test_initial_values_of_layer_scale():
    for model in (vit(layer_scale_init_value=0.25), adapter(layer_scale_init_value=0.25)):
        for block in model.blocks:
            assert (block.gamma1 == 0.25).all() and (block.gamma2 == 0.25).all()


def test_initial_values_of_a_relative_bias():
    for block in vit(pe_type='rpe', pe_joining='lape').blocks:
        assert block.attn.relative_position_bias_table.abs().max() == 0


@pytest.mark.parametrize('kind', ['scalar', 'channel', 'affine', 'scalar-norm', 'channel-norm'])
def test_initial_values_of_a_pe_norm(kind):
    for block in vit(pe_joining='lape', pe_norm=kind).blocks:
        assert (block.pe_norm.weight == 1).all()
        if block.pe_norm.bias is not None:
            assert (block.pe_norm.bias == 0).all()


def check_deformable_attention(attn: nn.Module, heads: int, levels: int, points: int) -> None:
    """Check that head h looks along the angle 2 pi h / heads, point p at p + 1 cells, whatever the query."""
    for linear in (attn.sampling_offsets, attn.attention_weights):
        assert (linear.weight == 0).all()
    assert (attn.attention_weights.bias == 0).all()
    offsets = attn.sampling_offsets.bias.detach().view(heads, levels, points, 2)
    for head in range(heads):
        angle = 2 * math.pi * head / heads
        x, y = math.cos(angle), math.sin(angle)
        for point in range(points):
            ray = torch.tensor((x, y)) / max(abs(x), abs(y)) * (point + 1)
            torch.testing.assert_close(offsets[head, :, point], ray.expand(levels, 2), atol=1e-5, rtol=0)
    for linear in (attn.value_proj, attn.output_proj):
        assert is_uniform(linear.weight, math.sqrt(6 / sum(linear.weight.shape)))
        assert (linear.bias == 0).all()


@pytest.fixture(scope='module')
def tiny_adapter():
    torch.manual_seed(0)
    return ViTAdapter('deit-tiny', pe_joining='lape')


def test_initial_values_of_the_adapters_vit(tiny_adapter):
    assert is_normal(tiny_adapter.pos_embed, 0.02)
    assert is_normal(tiny_adapter.level_embed, 1.0)
    for block in tiny_adapter.blocks:
        assert (block.gamma1 == 1).all() and (block.gamma2 == 1).all()


def test_initial_values_of_the_interactions(tiny_adapter):
    for interaction in tiny_adapter.interactions:
        assert (interaction.injector.gamma == 0).all()
        check_deformable_attention(interaction.injector.attn, 6, 3, 4)
    for extractor in extractors(tiny_adapter).values():
        check_deformable_attention(extractor.attn, 6, 1, 4)
        for linear in (extractor.ffn.fc1, extractor.ffn.fc2):
            assert is_normal(linear.weight, 0.02) and (linear.bias == 0).all()
        depthwise = extractor.ffn.dwconv.dwconv
        assert is_normal(depthwise.weight, math.sqrt(2 / 9)) and (depthwise.bias == 0).all()
    for interaction in adapter(init_values=0.3).interactions:
        torch.testing.assert_close(interaction.injector.gamma.detach(), torch.full((24,), 0.3))


def test_initial_values_of_the_adapters_convolutions(tiny_adapter):
    convolutions = [m for m in tiny_adapter.spm.modules() if isinstance(m, nn.Conv2d)]
    assert len(convolutions) == 10
    for module in (*convolutions, tiny_adapter.up):
        fan_out = math.prod(module.kernel_size) * module.out_channels
        assert is_normal(module.weight, math.sqrt(2 / fan_out))
        if module.bias is not None:
            assert (module.bias == 0).all()

"""The ViT against timm's and mmpretrain's on converted random weights, its outputs, sizes and windows."""

import pytest
import torch
from model_helpers import meta_device, randomise

from mmlape.errors import ConfigError
from mmlape.models import DistilledVisionTransformer, VisionTransformer
from mmlape.models.layers.attention import MultiheadAttention
from mmlape.models.position import AttentionPosition


@pytest.fixture(scope='module')
def timm_model():
    from timm.models.vision_transformer import VisionTransformer as TimmViT

    shape = dict(img_size=32, patch_size=8, embed_dim=48, depth=4, num_heads=4, mlp_ratio=2, num_classes=0)
    return randomise(TimmViT(**shape, init_values=1e-5))


def test_agrees_with_timm(tiny_arch, timm_model):
    from mmlape.checkpoint.key_maps import recognise
    from mmlape.models.vit.layouts import LAYOUTS

    ours = VisionTransformer(tiny_arch, 32, 8, layer_scale_init_value=1e-5, out_type='raw').eval()
    weights = recognise(timm_model.state_dict(), LAYOUTS)
    assert weights.layout == 'deit'
    ours.load_state_dict(weights.tensors)
    image = torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(ours(image)[0], timm_model.forward_features(image), atol=2e-5, rtol=0)
    double = timm_model.double().forward_features(image.double())
    torch.testing.assert_close(ours.double()(image.double())[0], double, atol=1e-9, rtol=0)
    timm_model.float()


@pytest.mark.parametrize('cls', [VisionTransformer, DistilledVisionTransformer])
def test_agrees_with_mmpretrain(tiny_arch, cls):
    import mmpretrain.models.backbones as peers

    from mmlape.checkpoint.key_maps import recognise
    from mmlape.models.vit.layouts import LAYOUTS

    peer = getattr(peers, cls.__name__)
    theirs = randomise(peer(tiny_arch, img_size=32, patch_size=8, out_type='raw', out_indices=[1, 3]))
    ours = cls(tiny_arch, 32, 8, out_type='raw', out_indices=[1, -1]).eval()
    weights = recognise(theirs.state_dict(), LAYOUTS)
    assert weights.layout == 'mmpretrain'
    ours.load_state_dict(weights.tensors)
    for size in ((32, 32), (48, 24)):
        image = torch.randn(2, 3, *size)
        for a, b in zip(ours(image), theirs(image), strict=True):
            torch.testing.assert_close(a, b, atol=2e-5, rtol=0)


def test_agrees_with_mmpretrains_clip(tiny_arch):
    """Its stem has no bias, and a norm follows the PE."""
    from mmpretrain.models.backbones import VisionTransformer as Peer

    from mmlape.checkpoint.key_maps import recognise
    from mmlape.models.vit.layouts import LAYOUTS

    theirs = randomise(Peer(tiny_arch, img_size=32, patch_size=8, out_type='raw', pre_norm=True))
    ours = VisionTransformer(tiny_arch, 32, 8, out_type='raw', patch_norm='post-posemb').eval()
    ours.load_state_dict(recognise(theirs.state_dict(), LAYOUTS).tensors)
    image = torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(ours(image)[0], theirs(image)[0], atol=2e-5, rtol=0)


def test_out_types(tiny_arch):
    image = torch.randn(2, 3, 24, 40)
    outs = {}
    for out_type in ('raw', 'cls_token', 'featmap', 'avg_featmap'):
        torch.manual_seed(1)
        outs[out_type] = VisionTransformer(tiny_arch, 32, 8, out_type=out_type).eval()(image)[0]
    raw = outs['raw']
    assert raw.shape == (2, 1 + 15, 48)
    torch.testing.assert_close(outs['cls_token'], raw[:, 0])
    torch.testing.assert_close(outs['avg_featmap'], raw[:, 1:].mean(1))
    torch.testing.assert_close(outs['featmap'].flatten(2).mT, raw[:, 1:])
    assert outs['featmap'].shape == (2, 48, 3, 5)


def test_distilled_returns_both_tokens_each_with_a_pe_row(tiny_arch):
    model = DistilledVisionTransformer(tiny_arch, 32, 8).eval()
    assert model.pos_embed.shape == (1, 2 + 16, 48)
    cls_token, dist_token = model(torch.randn(2, 3, 32, 32))[0]
    assert cls_token.shape == dist_token.shape == (2, 48)
    assert not torch.allclose(cls_token, dist_token)
    model.out_type = 'raw'
    raw = model(torch.randn(2, 3, 32, 32))[0]
    assert raw.shape == (2, 18, 48)


def test_running_layers_in_ranges_is_running_them_all(tiny_arch):
    model = randomise(VisionTransformer(tiny_arch, 32, 8, pe_joining='unshared', out_type='raw'))
    image = torch.randn(1, 3, 32, 32)
    x, pe, hw = model.embed(image)
    for start, stop in ((0, 1), (1, 3), (3, 4)):
        x, pe = model.run_layers(x, pe, hw, start, stop)
    torch.testing.assert_close(model.norm(x), model(image)[0])


@pytest.mark.parametrize(
    'kwargs',
    [dict(), dict(pe_joining='lape'), dict(pe_joining='unshared'), dict(pe_type='rpe', pe_joining='lape')],
    ids=lambda kwargs: kwargs.get('pe_type', '') + kwargs.get('pe_joining', 'default'),
)
@pytest.mark.parametrize('size', [(8, 8), (9, 33), (61, 8), (32, 32)])
def test_any_size_from_one_patch_on(tiny_arch, kwargs, size):
    model = VisionTransformer(tiny_arch, 32, 8, out_type='featmap', **kwargs).eval()
    assert model(torch.randn(1, 3, *size))[0].shape == (1, 48, -(-size[0] // 8), -(-size[1] // 8))


def test_non_square_pretraining_grid(tiny_arch):
    model = VisionTransformer(tiny_arch, (16, 48), 8, out_type='featmap')
    assert model.grid == (2, 6) and model.pos_embed.shape[1] == 13
    assert model(torch.randn(1, 3, 16, 48))[0].shape == (1, 48, 2, 6)


@pytest.mark.parametrize('hw', [(4, 6), (6, 2)])
def test_windows_are_block_diagonal_global_attention(hw):
    """Where windows divide the grid, a window is global attention with everything outside it masked."""
    windowed = randomise(MultiheadAttention(16, 2, window_size=2))
    rows, columns = torch.meshgrid(*(torch.arange(n) // 2 for n in hw), indexing='ij')
    window = (rows * 100 + columns).flatten()

    class Outside(AttentionPosition):
        def logits(self, attn, q, k, grid):
            return torch.zeros(len(window), len(window)).masked_fill(window[:, None] != window[None], -torch.inf)

    plain = MultiheadAttention(16, 2, encodings=[Outside()])
    plain.load_state_dict(windowed.state_dict())
    x = torch.randn(3, hw[0] * hw[1], 16)
    torch.testing.assert_close(windowed(x, hw), plain(x, hw), atol=1e-5, rtol=1e-5)


def test_window_padding_is_zero_after_the_projection_and_seen_by_attention():
    attn = randomise(MultiheadAttention(8, 1, window_size=2))
    x = torch.randn(1, 3, 8)
    q, k, v = attn.qkv(x).unflatten(-1, (3, 8)).unbind(2)
    first, second = slice(0, 2), slice(2, 3)
    expected = []
    for part in (first, second):  # a 1x3 grid in 2x2 windows: two tokens and two of padding, one token and three
        keys = torch.cat((k[:, part], torch.zeros(1, 4 - (part.stop - part.start), 8)), 1)
        values = torch.cat((v[:, part], torch.zeros(1, 4 - (part.stop - part.start), 8)), 1)
        expected.append((q[:, part] @ keys.mT / 8**0.5).softmax(-1) @ values)
    torch.testing.assert_close(attn(x, (1, 3)), attn.proj(torch.cat(expected, 1)), atol=1e-5, rtol=1e-5)


def test_frozen_stages(tiny_arch):
    model = VisionTransformer(tiny_arch, 32, 8, pe_joining='lape', frozen_stages=2, drop_path_rate=0.5).train()
    trained = {name.split('.')[1] for name, p in model.named_parameters() if p.requires_grad and 'blocks' in name}
    assert trained == {'2', '3'}
    assert not any(p.requires_grad for p in (model.cls_token, model.pos_embed, model.patch_embed.proj.weight))
    assert not model.blocks[1].training and model.blocks[2].training
    assert all(layer.with_cp for layer in VisionTransformer(tiny_arch, 32, 8, with_cp=True).blocks)
    assert not model.pos_drop.training and VisionTransformer(tiny_arch, 32, 8).train().pos_drop.training


def test_layer_depths_put_a_pe_norm_with_its_layer(tiny_arch):
    model = VisionTransformer(tiny_arch, 32, 8, pe_joining='lape')
    depth = lambda name: model.get_layer_depth(f'backbone.{name}', 'backbone.')  # noqa: E731
    assert depth('pos_embed') == depth('cls_token') == depth('patch_embed.proj.weight') == (0, 6)
    assert depth('blocks.2.pe_norm.weight') == depth('blocks.2.attn.qkv.bias') == (3, 6)
    assert depth('norm.weight') == (5, 6)


@pytest.mark.parametrize(
    ('kwargs', 'message'),
    [
        (dict(arch=dict(embed_dims=48)), 'arch must have exactly the keys'),
        (dict(out_indices=[0, 4]), 'there is no layer 4'),
        (dict(out_indices=()), r'out_indices=\(\): name one layer or more, the model has 4'),
        (dict(out_indices=None), 'out_indices=None: there is no layer None'),
        (dict(out_indices=[0, 1.5]), r'out_indices=\[0, 1.5\]: there is no layer 1.5'),
        (dict(frozen_stages=99), 'frozen_stages=99: choose from -1, for nothing, to 4, for all'),
        (dict(frozen_stages=-2), 'frozen_stages=-2: choose'),
        (dict(frozen_stages=None), 'frozen_stages=None: choose'),
        (dict(with_cls_token=False), "out_type='cls_token' needs with_cls_token=True"),
        (dict(window_attn=[True, False]), 'window_attn has 2 entries for 4 layers'),
        (dict(window_attn=True), 'window_attn needs with_cls_token=False'),
        (dict(patch_padding='left'), "unknown patch_padding='left'; choose one of: end, center"),
        (dict(interpolate_mode='bicubik'), "unknown interpolate_mode='bicubik'; choose one of: bilinear, bicubic,"),
        (dict(pe_type='rpe', interpolate_mode='tile'), "'tile' repeats an absolute PE, but pe_type='rpe' has tables"),
        (dict(pe_type='sasa', interpolate_mode='tile'), "but pe_type='sasa' has tables of offsets"),
    ],
)
def test_what_cannot_work_is_refused(tiny_arch, kwargs, message):
    with pytest.raises(ConfigError, match=message):
        VisionTransformer(**{'arch': tiny_arch, 'img_size': 32, 'patch_size': 8, **kwargs})


@pytest.mark.parametrize(
    ('arch', 'joining', 'cls', 'count'),
    [
        ('deit-tiny', 'default', VisionTransformer, 5_717_416),
        ('deit-tiny', 'lape', VisionTransformer, 5_722_024),
        ('deit-tiny', 'unshared', VisionTransformer, 6_133_480),
        ('deit-tiny', 'default', DistilledVisionTransformer, 5_910_800),
        ('deit-tiny', 'lape', DistilledVisionTransformer, 5_915_408),
        ('deit-small', 'default', VisionTransformer, 22_050_664),
        ('deit-small', 'lape', VisionTransformer, 22_059_880),
        ('deit-base', 'default', VisionTransformer, 86_567_656),
        ('deit-base', 'lape', VisionTransformer, 86_586_088),
    ],
)
def test_parameter_counts_of_the_paper_with_a_1000_class_head(arch, joining, cls, count):
    with meta_device():
        model = cls(arch, pe_joining=joining)
    heads = len(cls.prefix_tokens) * (model.embed_dims + 1) * 1000
    assert sum(p.numel() for p in model.parameters()) + heads == count


@pytest.mark.release
@pytest.mark.parametrize('scope', ['mmseg', 'mmdet', 'mmpretrain'])
def test_builds_from_every_scope(tiny_arch, scope):
    """In an interpreter where nothing of this package or of that one has been imported."""
    import subprocess
    import sys

    code = f"""if True:
        import sys
        from mmengine.registry import MODELS, DefaultScope
        assert not {{'mmlape', {scope!r}}} & set(sys.modules)
        DefaultScope.get_instance('t', scope_name={scope!r})
        m = MODELS.build(dict(type='mmlape.VisionTransformer', arch={tiny_arch}, pe_joining='lape'))
        assert type(m).__module__ == 'mmlape.models.vit.model'"""
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

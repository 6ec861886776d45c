"""The ViT against timm's and mmpretrain's on converted random weights, its outputs, sizes and windows."""

import pytest
import torch
from model_helpers import randomise

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


def test_layer_depths_put_a_pe_norm_with_its_layer(tiny_arch):
    model = VisionTransformer(tiny_arch, 32, 8, pe_joining='lape')
    depth = lambda name: model.get_layer_depth(f'backbone.{name}', 'backbone.')  # noqa: E731
    assert depth('pos_embed') == depth('cls_token') == depth('patch_embed.proj.weight') == (0, 6)
    assert depth('blocks.2.pe_norm.weight') == depth('blocks.2.attn.qkv.bias') == (3, 6)
    assert depth('norm.weight') == (5, 6)

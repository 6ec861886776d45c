"""The ViT against mmpretrain's on converted random weights, and its windows."""

import pytest
import torch
from model_helpers import randomise

from mmlape.checkpoint.opening import open_file
from mmlape.models import DistilledVisionTransformer, VisionTransformer
from mmlape.models.layers.attention import MultiheadAttention
from mmlape.models.position import AttentionPosition


@pytest.mark.parametrize('cls', [VisionTransformer, DistilledVisionTransformer])
def test_agrees_with_mmpretrain(tiny_arch, cls):
    import mmpretrain.models.backbones as peers

    from mmlape.checkpoint.key_maps import recognise
    from mmlape.models.vit.layouts import LAYOUTS

    peer = getattr(peers, cls.__name__)
    theirs = randomise(peer(tiny_arch, img_size=32, patch_size=8, out_type='raw', out_indices=[1, 3]))
    ours = cls(tiny_arch, 32, 8, out_type='raw', out_indices=[1, -1]).eval()
    weights = recognise(open_file(theirs.state_dict()), LAYOUTS)
    assert weights.layout == 'mmpretrain'
    ours.load_state_dict(weights.tensors)
    for size in ((32, 32), (48, 24)):
        image = torch.randn(2, 3, *size)
        for a, b in zip(ours(image), theirs(image), strict=True):
            torch.testing.assert_close(a, b, atol=2e-5, rtol=0)


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

"""Necks of the public ViT-Adapter code, beside PyTorch's own layers."""

import pytest
import torch
import torch.nn.functional as F
from mmdet.registry import MODELS
from model_helpers import randomise
from torch import nn

from mmlape.projects import ChannelMapperWithPooling, ExtraAttention


def test_pooling_halves_the_last_output():
    neck = ChannelMapperWithPooling([3, 4], 5, num_outs=4)
    randomise(neck)
    maps = torch.randn(2, 3, 9, 12), torch.randn(2, 4, 5, 6)
    outs = neck(maps)
    expected = [F.conv2d(m, conv.conv.weight, conv.conv.bias).relu() for m, conv in zip(maps, neck.convs)]
    expected += [F.max_pool2d(expected[1], 2)]
    expected += [F.max_pool2d(expected[2], 2)]
    assert [tuple(out.shape[-2:]) for out in outs] == [(9, 12), (5, 6), (2, 3), (1, 1)]
    for out, other in zip(outs, expected, strict=True):
        torch.testing.assert_close(out, other)
    assert set(neck.state_dict()) == {f'convs.{i}.conv.{leaf}' for i in (0, 1) for leaf in ('weight', 'bias')}
    assert len(ChannelMapperWithPooling([3, 4], 5)(maps)) == 2


def reference(neck: ExtraAttention, x: torch.Tensor) -> torch.Tensor:
    """PyTorch's encoder layer with the norm first, then a norm, on the same weights."""
    dims = neck.in_channels[-1]
    layer = nn.TransformerEncoderLayer(
        dims, neck.attn.num_heads, 4 * dims, 0.0, 'gelu', batch_first=True, norm_first=True, dtype=x.dtype
    )
    own = neck.state_dict()
    names = {
        'self_attn.in_proj_': 'attn.qkv.',
        'self_attn.out_proj.': 'attn.proj.',
        'linear1.': 'ffn.fc1.',
        'linear2.': 'ffn.fc2.',
        'norm1.': 'norm1.',
        'norm2.': 'norm2.',
    }
    layer.load_state_dict({a + leaf: own[b + leaf] for a, b in names.items() for leaf in ('weight', 'bias')})
    tokens = layer.train()(x.flatten(2).mT)
    return neck.final_norm(tokens).mT.reshape(x.shape)


@pytest.mark.parametrize('with_cp', [False, True])
def test_attention_is_on_the_last_map_alone(with_cp):
    neck = MODELS.build(dict(type='mmlape.ExtraAttention', in_channels=[4, 8], num_head=2, with_cp=with_cp)).double()
    randomise(neck)
    first, last = torch.randn(2, 4, 6, 8).double(), torch.randn(2, 8, 3, 4).double().requires_grad_()
    outs = neck((first, last))
    assert outs[0] is first and isinstance(outs, tuple)
    expected = reference(neck, last)
    torch.testing.assert_close(outs[1], expected, atol=1e-12, rtol=0)
    gradients = [torch.autograd.grad(out.square().sum(), last)[0] for out in (outs[1], expected)]
    torch.testing.assert_close(*gradients, atol=1e-10, rtol=0)

"""Conditional position encoding: timm's and mmpretrain's, prefix tokens, which layers, and its files."""

import pytest
import torch
from mmpretrain.models.utils import ConditionalPositionEncoding
from timm.models.twins import PosConv
from torch import nn

from mmlape.models import VisionTransformer
from mmlape.models.position.conditional import ConditionalPosition

ARCH = dict(embed_dims=16, num_layers=3, num_heads=2, feedforward_channels=32)


def vit(pe_type='cpe', **options):
    return VisionTransformer(ARCH, 32, 4, pe_type=pe_type, **options)


@pytest.mark.parametrize('prefix', [0, 2])
@pytest.mark.parametrize('grid', [(4, 4), (3, 7), (1, 1)], ids=str)
def test_equals_timms_and_mmpretrains(grid, prefix):
    kind, layer, theirs = ConditionalPosition(), nn.Module(), PosConv(8, 8)
    kind.attach(layer, 8)
    mm = ConditionalPositionEncoding(8, 8)
    for conv in (layer.cpe, mm.proj):
        conv.load_state_dict(theirs.proj[0].state_dict())
    x = torch.randn(2, prefix + grid[0] * grid[1], 8, requires_grad=True)
    out = kind.apply(layer, x, grid)
    for module, args in ((theirs, grid), (mm, grid)):
        torch.testing.assert_close(out[:, prefix:], module(x[:, prefix:], args))
    assert torch.equal(out[:, :prefix], x[:, :prefix])
    weight = torch.randn_like(out)
    ours = torch.autograd.grad((out * weight).sum(), [x, *layer.parameters()])
    both = torch.cat((x[:, :prefix], theirs(x[:, prefix:], grid)), dim=1)
    expected = torch.autograd.grad((both * weight).sum(), [x, *theirs.parameters()])
    for mine, other in zip(ours, expected):
        torch.testing.assert_close(mine, other)


@torch.no_grad()
@pytest.mark.parametrize('after', [(0,), (1,), (0, 2)], ids=str)
def test_follows_its_layers_only(after):
    """A convolution that is the negative identity leaves nothing of the patches behind its layer."""
    model = vit(dict(type='cpe', after=after), out_type='raw', out_indices=(0, 1, 2), final_norm=False)
    assert [hasattr(layer, 'cpe') for layer in model.blocks] == [number in after for number in range(3)]
    for layer in (model.blocks[number] for number in after):
        nn.init.zeros_(layer.cpe.bias)
        layer.cpe.weight.copy_(-nn.init.dirac_(torch.empty_like(layer.cpe.weight), groups=16))
    for number, out in enumerate(model(torch.randn(1, 3, 20, 28))):
        assert out[:, :1].any()
        left = out[:, 1:].abs().sum().item()
        assert left < 1e-4 if number in after else left > 1e-3

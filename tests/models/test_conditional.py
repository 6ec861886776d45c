"""Conditional position encoding: timm's and mmpretrain's, prefix tokens, which layers, checkpoints, wrong options."""

import pytest
import torch
from checkpoint_helpers import run_file
from mmpretrain.models.utils import ConditionalPositionEncoding
from model_helpers import randomise
from timm.models.twins import PosConv
from torch import nn

from mmlape.checkpoint.inspecting import inspect
from mmlape.models import SwinTransformer, VisionTransformer, ViTAdapter
from mmlape.models.position.conditional import ConditionalPosition
from mmlape.projects import CeiT

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


@pytest.mark.parametrize('with_cp', [False, True])
def test_beside_lape_iRPE_and_windows(with_cp):
    pe = ['learnable', 'irpe', dict(type='cpe', after=(0, 2), kernel_size=5)]
    options = dict(conv_inplane=8, deform_num_heads=2, window_attn=[True, False] * 2, window_size=2, with_cp=with_cp)
    model = ViTAdapter(dict(ARCH, num_layers=4), 64, pe_type=pe, pe_joining='lape', **options)
    sum(out.sum() for out in model(torch.randn(2, 3, 48, 80))).backward()
    assert [name for name, p in model.named_parameters() if '.cpe.' in name and not p.grad.any()] == []


SWIN = dict(arch=dict(embed_dims=8, depths=(1, 2), num_heads=(2, 2)), img_size=32, window_size=2)
CEIT = dict(arch=dict(ARCH, stem_channels=8), img_size=32, pe_joining='lape')


@torch.no_grad()
@pytest.mark.parametrize(
    ('backbone', 'options', 'pe', 'with_cpe', 'grids'),
    [
        (SwinTransformer, SWIN, ['rpe'], ['rpe', dict(type='cpe', after=(0, 1))], [(9, 13), (5, 7)]),
        (CeiT, CEIT, ['learnable'], ['learnable', dict(type='cpe', after=(0, 2))], [(3, 4), None, (3, 4)]),
    ],
    ids=['Swin', 'CeiT'],
)
def test_other_backbones_take_it(backbone, options, pe, with_cpe, grids):
    """The same weights without it, and timm's convolution of the patches in a hook behind those layers."""
    model = randomise(backbone(**options, pe_type=with_cpe)).eval()
    twin, weights = backbone(**options, pe_type=pe).eval(), model.state_dict()
    twin.load_state_dict({name: value for name, value in weights.items() if '.cpe.' not in name})

    def add(theirs, grid):
        def follow(layer, args, out):
            x, prefix = out[0], out[0].shape[1] - grid[0] * grid[1]
            return torch.cat((x[:, :prefix], theirs(x[:, prefix:], grid)), dim=1), *out[1:]

        return follow

    image = torch.randn(2, 3, 36, 52)
    plain = twin(image)[0]
    for layer, other, grid in zip(model.all_layers, twin.all_layers, grids):
        assert hasattr(layer, 'cpe') == (grid is not None)
        if grid is not None:
            theirs = PosConv(*layer.cpe.weight.shape[:1] * 2)
            theirs.proj[0].load_state_dict(layer.cpe.state_dict())
            other.register_forward_hook(add(theirs, grid))
    found = model(image)[0]
    torch.testing.assert_close(found, twin(image)[0])
    assert (found - plain).abs().max() > 0.1


@pytest.mark.parametrize(
    'pe', ['cpe', ['learnable', 'irpe', dict(type='cpe', after=(1, 2), kernel_size=5)]], ids=['alone', 'beside']
)
def test_a_file_tells_it_and_loads(pe, tmp_path):
    model = vit(pe)
    run_file(tmp_path / 'vit.pth', model)
    told = eval(inspect(tmp_path / 'vit.pth')['to load it'].removeprefix('backbone='))['pe_type']
    loaded = vit(told, init_cfg=dict(type='Pretrained', checkpoint=str(tmp_path / 'vit.pth')))
    loaded.init_weights()
    assert all(torch.equal(a, b) for a, b in zip(loaded.state_dict().values(), model.state_dict().values()))

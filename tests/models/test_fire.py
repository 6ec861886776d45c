"""FIRE in two dimensions: written out again with its gradients, and what it does on other grids."""

import math

import pytest
import torch

from mmlape.models import VisionTransformer

GRID = (3, 5)
NAMES = [f'fire_{name}' for name in ('scale', 'length', 'hidden_weight', 'hidden_bias', 'out_weight', 'out_bias')]


def vit(**options):
    arch = dict(embed_dims=16, num_layers=2, num_heads=2, feedforward_channels=16)
    return VisionTransformer(arch, [4 * side for side in GRID], 4, **{'pe_type': 'fire', **options})


def random(length):
    attn = vit().double().blocks[1].attn
    for name in NAMES:
        torch.nn.init.normal_(getattr(attn, name))
    attn.fire_scale.data.fill_(-0.3)  # its sign has no meaning
    attn.fire_length.data.copy_(torch.tensor(length))
    return attn


def written_out(attn, grid):
    """One pair of patches after the other."""
    scale, lengths, weight, shift, out, constant = (getattr(attn, name) for name in NAMES)

    def psi(x):
        return torch.log(scale.abs()[0] * x + 1)

    def share(offset, axis):
        longest = torch.max(lengths[axis], torch.tensor(max(grid[axis] - 1.0, 1.0), dtype=torch.float64))
        return math.copysign(1, offset) * psi(abs(offset)) / psi(longest)

    cells = [divmod(cell, grid[1]) for cell in range(grid[0] * grid[1])]
    rows = []
    for i, j in cells:
        inputs = [torch.stack([share(i - k, 0), share(j - m, 1)]) for k, m in cells]
        rows.append(torch.stack([out @ torch.relu(weight @ value + shift) + constant for value in inputs]))
    return torch.stack(rows).permute(2, 0, 1)


@pytest.mark.parametrize('length', [(3.7, 9.2), (1.3, 2.1)], ids=['longer', 'shorter'])
@pytest.mark.parametrize('grid', [GRID, (4, 2), (1, 6)], ids=str)
def test_the_bias_is_written_out(grid, length):
    attn = random(length)
    parameters = [getattr(attn, name) for name in NAMES]
    found, expected = attn.encodings[0].bias(attn, grid), written_out(attn, grid)
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)
    of = torch.randn_like(found)
    for ours, theirs in zip(*(torch.autograd.grad((bias * of).sum(), parameters) for bias in (found, expected))):
        torch.testing.assert_close(ours, theirs, atol=1e-10, rtol=0)


@torch.no_grad()
def test_what_other_grids_have():
    """Below L, an offset's bias is the same on any grid; above, the longest offset's is."""
    attn = random((5.0, 6.0))
    bias = {grid: attn.encodings[0].bias(attn, grid) for grid in ((3, 4), (6, 7), (11, 9))}
    shared = bias[6, 7].view(2, 6, 7, 6, 7)[:, :3, :4, :3, :4].reshape(2, 12, 12)
    torch.testing.assert_close(bias[3, 4], shared, atol=1e-12, rtol=0)
    for first, last in ((0, -1), (-1, 0)):
        torch.testing.assert_close(bias[11, 9][:, first, last], bias[6, 7][:, first, last], atol=1e-12, rtol=0)
    assert not torch.allclose(bias[11, 9][:, 0, 1], bias[6, 7][:, 0, 1])

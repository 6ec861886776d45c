"""Dual PatchNorm: against its equation on explicitly cut patches."""

import pytest
import torch
import torch.nn.functional as F
from model_helpers import randomise

from mmlape.models.layers.patch_embed import PATCH_NORMS, PatchEmbed

TABLE_6 = sorted(set(PATCH_NORMS) - {'none'})


def cut(image, p):
    """Patches (B, N, C*P*P) in reading order, with loops."""
    rows, columns = image.shape[2] // p, image.shape[3] // p
    patches = [
        image[:, :, i * p : (i + 1) * p, j * p : (j + 1) * p].flatten(1) for i in range(rows) for j in range(columns)
    ]
    return torch.stack(patches, 1)


def test_dual_patch_norm_is_the_papers_equation():
    embed = randomise(PatchEmbed(3, 16, 4, 'dual')).double()
    image = torch.randn(2, 3, 12, 8, dtype=torch.float64)
    patches = cut(image, 4)
    n0, n1 = embed.norm0, embed.norm1
    x = F.layer_norm(patches, (48,), n0.weight, n0.bias, 1e-6)
    x = F.linear(x, embed.proj.weight.flatten(1), embed.proj.bias)
    x = F.layer_norm(x, (16,), n1.weight, n1.bias, 1e-6)
    torch.testing.assert_close(embed(image)[0], x, atol=1e-10, rtol=0)


def direct(embed, image):
    """Norm, linear map, norm, one after the other on cut patches."""
    x = cut(image, embed.patch_size)
    x = x if embed.norm0 is None else embed.norm0(x)
    x = F.linear(x, embed.proj.weight.flatten(1), embed.proj.bias)
    return x if embed.norm1 is None else embed.norm1(x)


@pytest.mark.parametrize('patch_norm', TABLE_6)
def test_folded_norms_are_the_direct_form(patch_norm):
    """Outputs and all gradients, with a constant patch, a zero one and one far from zero."""
    embed = randomise(PatchEmbed(3, 16, 4, patch_norm))
    image = torch.randn(2, 3, 12, 8)
    image[0, :, :4, :4], image[0, :, 4:8, :4] = 7.0, 0.0
    image[1, :, :4, 4:] += 30
    torch.testing.assert_close(embed(image)[0], direct(embed, image), atol=1e-5, rtol=1e-5)
    embed, image = embed.double(), image.double()
    leaves = [image.requires_grad_(), *embed.parameters()]
    target = torch.randn(2, 6, 16).double()
    ours, theirs = (
        torch.autograd.grad((out * target).sum(), leaves) for out in (embed(image)[0], direct(embed, image))
    )
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, atol=1e-9, rtol=1e-9)

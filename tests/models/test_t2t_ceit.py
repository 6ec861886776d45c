"""T2T-ViT and CeiT: what golden data of the public code does not show."""

import pytest
import torch
import torch.nn.functional as F
from model_helpers import TOKEN_ARCHS, new_token_vit, randomise

from mmlape.projects import CeiT, T2TViT
from mmlape.projects.t2t import TokenPerformer

FAMILIES = pytest.mark.parametrize('cls', TOKEN_ARCHS)
STEMS = {T2TViT: 'tokens_to_token', CeiT: 'i2t'}
LINEAR = {T2TViT: 'project', CeiT: 'proj'}


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


# training


# performers


def test_random_features_are_orthogonal_with_the_norm_of_a_gaussians():
    w = TokenPerformer(27, 64).w
    torch.testing.assert_close(w @ w.mT, 32.0 * torch.eye(32), atol=1e-4, rtol=0)


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

"""Convolutions that a processor gets wrong in bfloat16 end a run before its first step."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import mmlape.bf16
from mmlape.bf16 import require_right_convolutions
from mmlape.errors import ConfigError
from mmlape.lab.training.optim import BFloat16OptimWrapper
from mmlape.models import TimmViT

CONV2D = F.conv2d


def wrong(image, weight, *args):
    """Convolve, wrongly in bfloat16."""
    return CONV2D(image, weight, *args) * (2 if image.dtype == torch.bfloat16 else 1)


@pytest.mark.parametrize('shape', [(3, 16, 16), (4, 16, 16), (16, 4, 4), (8, 14, 14), (32, 3, 2)])
def test_a_shape_is_refused_where_another_input_shows_it_wrong(shape):
    channels, kernel, stride = shape
    conv = nn.Conv2d(channels, 96, kernel, stride, bias=False)
    image = torch.rand(2, channels, 7 * stride + kernel, 7 * stride + kernel)
    with torch.no_grad():
        expected = conv(image)
        found = F.conv2d(image.bfloat16(), conv.weight.bfloat16(), None, stride).float()
    state = torch.random.get_rng_state()
    if (found - expected).norm() > 0.1 * expected.norm():
        with pytest.raises(ConfigError, match=f'0: PyTorch convolves {channels} channels by {kernel} x {kernel}'):
            require_right_convolutions(nn.Sequential(conv))
    else:
        require_right_convolutions(nn.Sequential(conv))
    assert torch.equal(torch.random.get_rng_state(), state)


def test_training_and_a_frozen_vit_are_refused(monkeypatch):
    monkeypatch.setattr(mmlape.bf16.F, 'conv2d', wrong)
    model = nn.Sequential(nn.Conv2d(3, 8, 4, 4))
    wrapper = BFloat16OptimWrapper(torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(ConfigError, match='ONEDNN_MAX_CPU_ISA'), wrapper.optim_context(model):
        pass
    vit = TimmViT('test_vit', frozen=True, frozen_dtype='bf16', pretrained=False)
    with pytest.raises(ConfigError, match='proj: PyTorch convolves 3 channels'):
        vit(torch.zeros(1, 3, 32, 32))

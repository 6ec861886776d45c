"""Convolutions in bfloat16 on the CPU, which PyTorch gets wrong for some shapes on processors with AMX."""

import torch
import torch.nn.functional as F
from torch import nn

from mmlape.errors import ConfigError

_CELLS = 4  # of a side of the output that is tried


@torch.no_grad()
def require_right_convolutions(model: nn.Module) -> None:
    """Try each shape of convolution that a model has on the CPU, in bfloat16 beside float32.

    oneDNN's kernels for AMX are wrong for some shapes, such as patches of images with four channels
    (pytorch/pytorch#169688), without a word. The random state is left as it is.

    Raises:
        ConfigError: One is wrong here; the message says how to leave these kernels out.
    """
    tried = set()
    for name, conv in model.named_modules():
        if not isinstance(conv, nn.Conv2d) or conv.weight.device.type != 'cpu':
            continue
        geometry = conv.stride, 0, conv.dilation, conv.groups
        shape = tuple(conv.weight.shape), geometry
        if shape in tried:
            continue
        tried.add(shape)
        sides = [
            reach * (width - 1) + 1 + (_CELLS - 1) * step
            for width, step, reach in zip(conv.kernel_size, conv.stride, conv.dilation)
        ]
        generator = torch.Generator().manual_seed(0)
        image = torch.randn(1, conv.in_channels, *sides, generator=generator).bfloat16()
        weight = torch.randn(conv.weight.shape, generator=generator).bfloat16()
        expected = F.conv2d(image.float(), weight.float(), None, *geometry)
        found = F.conv2d(image, weight, None, *geometry).float()
        if (found - expected).norm() > 0.1 * expected.norm():
            raise ConfigError(
                f'{name}: PyTorch convolves {conv.in_channels} channels by {conv.kernel_size[0]} x '
                f'{conv.kernel_size[1]} wrongly in bfloat16 on this processor (oneDNN, AMX). Set '
                'ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 before the start, or leave bf16 out'
            )

"""Random but non-trivial weights, so that every parameter matters in a comparison."""

import torch
from torch import nn

from mmlape.models import CompactTransformer


def cvt(arch: dict, img_size, patch_size: int, **kwargs) -> CompactTransformer:
    """A CVT under the arguments of a ViT."""
    arch = dict(arch, tokenizer=dict(type='patch', patch_size=patch_size), pooling='sequence_pool')
    return CompactTransformer(arch, img_size, **kwargs)


@torch.no_grad()
def randomise(model: nn.Module) -> nn.Module:
    """Fill parameters and batch-norm statistics; matrices small, scales around one. Returns the model in eval mode."""
    for name, parameter in model.named_parameters():
        scale = (name.endswith('weight') and parameter.ndim == 1) or 'gamma' in name
        spread = 0.2 if parameter.ndim > 1 else 0.3
        parameter.copy_(torch.randn_like(parameter) * spread + float(scale))
        if 'sampling_offsets.weight' in name:
            parameter.mul_(0.5)
    for name, buffer in model.named_buffers():
        if name.endswith('running_mean'):
            buffer.copy_(0.1 * torch.randn_like(buffer))
        elif name.endswith('running_var'):
            buffer.copy_(torch.rand_like(buffer) + 0.5)
    model.eval()
    return model

"""Fuse each BatchNorm into the convolution before it, for inference.

BN(w * x + b) = (s w) * x + s (b - mean) + beta,  s = gamma / sqrt(var + eps)
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils.fusion import fuse_conv_bn_eval


@contextmanager
def fuse_batch_norms(model: nn.Module) -> Iterator[None]:
    """Run a model in evaluation mode with each BatchNorm folded into the convolution right before it.

    Found are those that follow one another in an ``nn.Sequential``, in a ``ConvModule`` of MMCV, or
    in the ``conv_norm_pairs`` of a module, which names them. Inside the context, neither train the
    model nor save it: its state dict lacks the BatchNorms. Afterwards, the model is what it was.

    Raises:
        ValueError: If a BatchNorm that would be folded is in training mode.
    """
    before = [(parent, names, [getattr(parent, name) for name in names]) for parent, names in _pairs(model)]
    for _, _, pair in before:
        if any(module.training for module in pair):
            raise ValueError(f'BatchNorm is folded in evaluation mode only; call model.eval() first: {pair}')
    try:
        for parent, (conv_name, norm_name), (conv, norm) in before:
            setattr(parent, conv_name, fuse_conv_bn_eval(conv, norm))
            setattr(parent, norm_name, nn.Identity())
        yield
    finally:
        for parent, names, pair in before:
            for name, module in zip(names, pair):
                setattr(parent, name, module)


def _pairs(model: nn.Module) -> Iterator[tuple[nn.Module, tuple[str, str]]]:
    """Yield parents, and the names of a convolution and of the BatchNorm that alone reads it."""
    # where nobody has imported it, a model has none of its modules
    conv_module = getattr(sys.modules.get('mmcv.cnn'), 'ConvModule', ())
    for parent in list(model.modules()):
        if isinstance(parent, nn.Sequential):
            children = list(parent.named_children())
        elif isinstance(parent, conv_module) and parent.with_norm and parent.order[:2] == ('conv', 'norm'):
            children = [('conv', parent.conv), (parent.norm_name, parent.norm)]
        else:
            yield from ((parent, names) for names in getattr(parent, 'conv_norm_pairs', ()))
            continue
        for (name, conv), (norm_name, norm) in pairwise(children):
            if isinstance(conv, nn.Conv2d) and isinstance(norm, _BatchNorm):
                yield parent, (name, norm_name)

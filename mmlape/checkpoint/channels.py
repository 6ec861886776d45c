"""Filters that read an image of three channels, or of one, for images with other channels, as timm makes them.

    one channel: sum_c w_c;    n of m channels: w_(i mod m) m / n

So a gray image has the outputs of its copies in three channels. A norm of the patches' values goes into the map behind
it first: its scale and shift are of channels, too.
"""

import math
from collections.abc import Mapping

from torch import Tensor

from mmlape.checkpoint.load_options import LoadOptions
from mmlape.weights.load_report import LoadReport

OF_IMAGES = (1, 3)
"""Channels of the images that public weights read."""


def fit_channels(
    tensors: dict[str, Tensor], wanted: Mapping[str, Tensor], options: LoadOptions, report: LoadReport
) -> dict[str, Tensor]:
    """Return tensors whose filters of the image have the channels of a model's, ``wanted``; say how where not asked.

    A filter of the image is one of as many channels as images of public weights have, while the
    model's has others and the same shape else.
    """
    out = dict(tensors)
    for name, kernel in tensors.items():
        kernel_of_model = wanted.get(name)
        if kernel_of_model is None or not _reads_other_channels(kernel, kernel_of_model):
            continue
        have, channels = kernel.shape[1], kernel_of_model.shape[1]
        if not options.adapt_channels:
            report.problems.append(
                f'wrong channels: {name} reads images of {have}, and the model has '
                f'in_channels={channels}; adapt_channels=True (in init_cfg, or of '
                'mmlape.load_weights) sums or repeats its filters as timm does'
            )
            continue
        _fold_norm(out, name, kernel_of_model)
        out[name] = with_channels(out[name], channels)
        report.resized[name] = f'{have} -> {channels} channels'
    return out


def _reads_other_channels(kernel: Tensor, kernel_of_model: Tensor) -> bool:
    if kernel.ndim != 4 or kernel_of_model.ndim != 4 or kernel.shape[1] not in OF_IMAGES:
        return False
    same = kernel.shape[:1] + kernel.shape[2:] == kernel_of_model.shape[:1] + kernel_of_model.shape[2:]
    return same and kernel.shape[1] != kernel_of_model.shape[1]


def with_channels(kernel: Tensor, channels: int) -> Tensor:
    """Return a filter (D, C, P, P) of the image for other channels, of the sums that copies of a gray image have."""
    have, values = kernel.shape[1], kernel.float()
    if channels == 1:
        return values.sum(1, keepdim=True).to(kernel.dtype)
    repeated = values.repeat(1, math.ceil(channels / have), 1, 1)[:, :channels]
    return (repeated * (have / channels)).to(kernel.dtype)


def _fold_norm(tensors: dict[str, Tensor], name: str, kernel_of_model: Tensor) -> None:
    """Put scale and shift of the norm before a stem's map into the map; what is left of it is the identity."""
    stem = name.removesuffix('proj.weight')
    scale, shift = (tensors.get(f'{stem}norm0.{leaf}') for leaf in ('weight', 'bias'))
    if scale is None:
        return
    kernel = tensors[name]
    if shift is not None:
        moved = (kernel * shift.view(kernel.shape[1:])).flatten(1).sum(1)
        tensors[f'{stem}proj.bias'] = tensors[f'{stem}proj.bias'] + moved
        tensors[f'{stem}norm0.bias'] = shift.new_zeros(kernel_of_model[0].numel())
    tensors[name] = kernel * scale.view(kernel.shape[1:])
    tensors[f'{stem}norm0.weight'] = scale.new_ones(kernel_of_model[0].numel())

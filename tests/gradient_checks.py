"""Gradients against finite differences in float64, along a direction in which every parameter counts alike."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

STEP = 1e-7
TOLERANCE = 1e-5  # a ReLU or a maximum that switches within a step costs up to 1e-6; a wrong layout 1e-2 and more


def projected(outs, seed: int = 7) -> Tensor:
    """A fixed random projection of tensors to a number; a mean would hide a gradient of the wrong layout."""
    generator = torch.Generator().manual_seed(seed)
    outs = [outs] if isinstance(outs, Tensor) else outs
    flat = [out if isinstance(out, Tensor) else torch.stack(list(out)) for out in outs]
    return sum((out * torch.randn(out.shape, generator=generator, dtype=out.dtype)).sum() for out in flat)


def relative_error(model: nn.Module, loss: Callable[[], Tensor]) -> float:
    """Relative difference of the directional derivative that autograd gives and central differences.

    Each parameter's direction is random and scaled by its gradient's norm, so a single wrong parameter shows. Linear
    and convolution weights are scaled to keep variances first: sums of huge terms would hide in rounding.
    """
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim in (2, 4):
                parameter.mul_(parameter[0].numel() ** -0.5 / parameter.std())
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    gradients = torch.autograd.grad(loss(), parameters)
    directions, expected = [], 0.0
    for gradient in gradients:
        direction = torch.randn_like(gradient) + torch.sign(gradient)
        direction = direction / (direction.norm() * gradient.norm().clamp(min=1e-9)) * gradient.norm().clamp(max=1.0)
        directions.append(direction)
        expected += float((gradient * direction).sum())
    values = []
    for sign in (1, -1):
        with torch.no_grad():
            torch._foreach_add_(parameters, directions, alpha=sign * STEP)
            values.append(float(loss()))
            torch._foreach_add_(parameters, directions, alpha=-sign * STEP)
    measured = (values[0] - values[1]) / (2 * STEP)
    return abs(measured - expected) / max(abs(expected), 1e-9)

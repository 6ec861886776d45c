"""How far apart two sides of a comparison are: their outputs, and the gradients of a random projection of these.

The mean of an output has the same gradient everywhere and hides wrong gradients; a random projection does not.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache

import torch
from torch import Tensor, nn


def leading(out: object) -> list[Tensor]:
    """Return the tensors of an output, whatever holds them."""
    return [out] if isinstance(out, Tensor) else [tensor for part in out for tensor in leading(part)]


def flat(out: object) -> Tensor:
    """Return an output as (B, values)."""
    return torch.cat([tensor.flatten(1) for tensor in leading(out)], dim=1)


def projection(out: Tensor) -> Tensor:
    """Return the sum of an output's products with fixed random numbers."""
    return (out.float() * _direction(out.shape, out.device)).sum()


@lru_cache(maxsize=8)  # a backward that is timed must not make random numbers and move them to the GPU
def _direction(shape: torch.Size, device: torch.device) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(3)).to(device)


def forget_directions() -> None:
    """Free the random numbers that `projection` keeps."""
    _direction.cache_clear()


def outputs_and_gradients(
    model: nn.Module,
    images: Tensor,
    arrange: Callable = flat,
    context: Callable[[], AbstractContextManager] = nullcontext,
) -> tuple[Tensor, dict]:
    """Return a model's output in evaluation mode, and its gradients in training mode, in the model's own dtype.

    Args:
        model: The model; its drop rates are 0.
        images: (B, 3, H, W).
        arrange: Brings the output into the layout in which the sides are compared.
        context: Makes the context of each forward, such as autocast.

    Returns:
        The output, and the gradients of its projection by the name of the parameter, and of the images.
    """
    model.eval()  # not chained: mmsegmentation's ViT returns nothing here
    with torch.no_grad(), context():
        out = arrange(model(images))
    model.train()
    model.zero_grad(set_to_none=True)
    images = images.clone().requires_grad_()
    with context():
        loss = projection(arrange(model(images)))
    loss.backward()
    named = {name: value.grad for name, value in model.named_parameters() if value.grad is not None}
    prefix = '_orig_mod.'  # of a compiled model
    return out, {'images': images.grad, **{name.removeprefix(prefix): value for name, value in named.items()}}


def agreement(
    mine: tuple[Tensor, dict], other: tuple[Tensor, dict], tolerance: float = 1e-3, of_gradients: float = 1e-2
) -> str:
    """Return a sentence about how far apart outputs and gradients are.

    Args:
        mine: An output, and gradients by name.
        other: The same of the reference.
        tolerance: Relative distance of outputs above which the two are not the same function.
        of_gradients: The same of one parameter's gradient, in which rounding picks another maximum of a pooling, or
            another cell.
    """
    if mine[1].keys() != other[1].keys():
        return f'NOT the same function: gradients of {", ".join(sorted(mine[1].keys() ^ other[1].keys()))} on one side'
    outputs, gradients = distances(mine, other)
    same = outputs <= tolerance and gradients <= of_gradients  # not so for NaN
    return f'{"" if same else "NOT the same function: "}outputs {outputs:.0e}, gradients {gradients:.0e} apart'


def distances(mine: tuple[Tensor, dict], other: tuple[Tensor, dict]) -> tuple[float, float]:
    """Return the relative distance of outputs, and the largest of the gradients of a parameter.

    Args:
        mine: An output, and gradients by name.
        other: The same of the reference.
    """
    outputs = float((mine[0] - other[0]).abs().max() / other[0].abs().max())
    norms = {name: float(value.norm()) for name, value in other[1].items()}
    least = 1e-4 * max(norms.values())  # smaller ones are 0 but for rounding, such as those of a key's bias
    return outputs, max(float((mine[1][name] - other[1][name]).norm()) / max(norms[name], least) for name in norms)

"""Cheap steps whose results are computed again for the backward pass instead of being kept."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

Step = Callable[[Tensor], Tensor]


def recomputed(rest: Callable[..., Tensor], *steps: tuple[Step, Tensor]) -> Tensor:
    """Return ``rest(step(x), ...)``; what ``rest`` keeps of a ``step(x)`` for its backward is computed again there.

    Worth it where a step is cheap and keeps its input anyway, as norms and activations do.
    """
    results = [step(x) for step, x in steps]
    if not _applies():
        return rest(*results)
    places = {
        y.data_ptr(): number  # a step that works in place, or does nothing, returns its input
        for number, (y, (_, x)) in enumerate(zip(results, steps))
        if y is not x and y.requires_grad and y.is_contiguous()
    }

    def pack(kept: Tensor) -> Tensor | tuple[int, torch.Size]:
        number = places.get(kept.data_ptr()) if kept.layout == torch.strided else None
        if number is None or kept.numel() != results[number].numel() or not kept.is_contiguous():
            return kept
        return (number, kept.shape) if kept.dtype == results[number].dtype else kept

    def unpack(packed: Tensor | tuple[int, torch.Size]) -> Tensor:
        if isinstance(packed, Tensor):
            return packed
        step, x = steps[packed[0]]
        with torch.no_grad():
            return step(x).view(packed[1])

    pack.recomputes = True
    with saved_tensors_hooks(pack, unpack):
        out = rest(*results)
    results.clear()  # they live as long as the hooks otherwise
    return out


def _applies() -> bool:
    """Check for a plain training step: compilers decide themselves, and a checkpoint around it keeps nothing."""
    find = getattr(torch._C._autograd, '_top_saved_tensors_default_hooks', None)
    if (
        find is None
        or not torch.is_grad_enabled()
        or torch.compiler.is_compiling()
        or torch.jit.is_tracing()
        or torch._C._are_functorch_transforms_active()
    ):
        return False
    hooks = find(False)
    return hooks is None or getattr(hooks[0], 'recomputes', False)

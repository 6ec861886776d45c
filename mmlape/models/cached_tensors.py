"""Tensors that follow from sizes alone, such as indices and angles: built once, and kept."""

from collections.abc import Callable
from functools import lru_cache, wraps

import torch
from torch.utils._python_dispatch import _disable_current_modes, is_in_torch_dispatch_mode


def cached_tensor(maxsize: int) -> Callable[[Callable], Callable]:
    """Keep the last results of a function of hashable arguments.

    Where operations are recorded (compilers, exports, fake tensors) or transformed, results are built anew: their
    tensors must not outlive them.

    Args:
        maxsize: How many results are kept.
    """

    def decorate(build: Callable) -> Callable:
        @lru_cache(maxsize)
        def keep(*args):
            # a kept tensor must be an ordinary one, also if the first call is in inference mode
            with torch.inference_mode(False), _disable_current_modes():
                return build(*args)

        @wraps(build)
        def call(*args):
            recorded = torch.compiler.is_compiling() or torch.jit.is_tracing() or is_in_torch_dispatch_mode()
            if recorded or torch._C._are_functorch_transforms_active():
                return build(*args)
            return keep(*args)

        call.cache_clear, call.cache_info = keep.cache_clear, keep.cache_info
        return call

    return decorate

"""Random numbers that all processes of a run have in common: a function of its seed and iteration.

A model's other randomness, such as drop path, differs between processes. What concerns the batch, such as where a
position embedding is read, must not: two processes then compute what one does.
"""

import torch
import torch.distributed as dist
from torch import Tensor

_generator: torch.Generator | None = None
# The largest root of x^(n + 1) = x + 1 for n = 3: multiples of its inverse powers fill the unit
# cube evenly (the R sequence of M. Roberts, 2018)
_ROOT = 1.2207440846057596


def seed_common(seed: int | None) -> None:
    """Draw common numbers from a seed, the same in all processes; from torch's generator for None, as at first."""
    global _generator
    _generator = None if seed is None else torch.Generator().manual_seed(seed)


def common_numbers(count: int | None, device: torch.device) -> Tensor:
    """Draw three numbers from 0 to 1 for a batch, (3,), or for each of this process' ``count`` images, (count, 3).

    Numbers of images are one draw, moved by an even sequence over the images of all processes,
    which take turns as samplers give them: each image's are uniform, and a batch covers the range.
    A compiled model leaves its graph for them.
    """
    # not a decorator, for which `import mmlape` would import the compiler
    return torch.compiler.disable(_draw)(count, device)


def _draw(count: int | None, device: torch.device) -> Tensor:
    drawn = torch.rand(3, generator=_generator, dtype=torch.float64)
    if count is not None:
        is_shared = dist.is_available() and dist.is_initialized()
        rank, world = (dist.get_rank(), dist.get_world_size()) if is_shared else (0, 1)
        step = _ROOT ** -torch.arange(1, 4, dtype=torch.float64)
        drawn = (drawn + (rank + world * torch.arange(count))[:, None] * step) % 1
    return drawn.to(device, torch.float32)

"""Linear maps on processors where oneDNN's matrix products are faster than those of PyTorch's BLAS.

MKL, the BLAS of PyTorch's packages, has no AVX-512 kernels for processors that are not Intel's;
oneDNN, which PyTorch uses for convolutions, has. There a float32 product takes about half the time
on Zen 5, whose units are 512 bits wide, and about nine tenths on Zen 4, which computes 512 bits in
two halves. Small products are left to the BLAS: a call of oneDNN from here costs a tenth of a
millisecond. So are the gradients of small weights on Zen 4.
"""

import re
from functools import cache
from math import inf
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import is_in_torch_dispatch_mode


class Linear(nn.Linear):
    """``nn.Linear`` by ``linear``."""

    def forward(self, x: Tensor) -> Tensor:
        """Map the last axis."""
        return linear(x, self.weight, self.bias)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute ``F.linear``, by oneDNN where that is faster.

    Where operations are recorded (compilers, exports, counters of FLOPs), transformed
    (``torch.func``) or cast (autocast), it is ``F.linear`` itself.
    """
    if not (_is_plain(x, weight) and x.numel() * len(weight) >= _break_even()[0]):
        return F.linear(x, weight, bias)
    return _Linear.apply(x, weight, bias)


@cache
def _break_even() -> tuple[float, float]:
    """Return from how many multiplications, and for gradients of weights of how many elements, oneDNN is faster."""
    info = Path('/proc/cpuinfo')
    text = info.read_text() if info.is_file() else ''
    if not (
        hasattr(torch.ops.mkldnn, '_linear_pointwise')
        and torch.backends.mkldnn.is_available()
        and torch.backends.cpu.get_cpu_capability() == 'AVX512'
        and 'AuthenticAMD' in text
    ):
        return inf, inf
    zen4 = re.search(r'cpu family\s*: 25$', text, re.M)
    return (2**26, 2**19) if zen4 else (2**23, 0)


def _is_plain(x: Tensor, weight: Tensor) -> bool:
    return (
        not (torch.compiler.is_compiling() or torch.jit.is_tracing() or is_in_torch_dispatch_mode())
        and not torch._C._are_functorch_transforms_active()
        and x.device.type == weight.device.type == 'cpu'
        and x.dtype == weight.dtype == torch.float32
        and type(x) is Tensor
        and type(weight) in (Tensor, nn.Parameter)
        and not torch.is_autocast_enabled('cpu')
    )


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, weight, bias, 'none', [], '')

    @staticmethod
    def setup_context(ctx, inputs: tuple[Tensor, Tensor, Tensor | None], output: Tensor) -> None:
        x, weight, _ = inputs
        ctx.save_for_backward(x, weight)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        flat, rows = gradient.reshape(-1, gradient.shape[-1]), x.reshape(-1, x.shape[-1])
        product = F.linear if weight.numel() < _break_even()[1] else linear
        return (
            linear(gradient, weight.t()) if ctx.needs_input_grad[0] else None,
            product(flat.t(), rows.t()) if ctx.needs_input_grad[1] else None,
            flat.sum(0) if ctx.needs_input_grad[2] else None,
        )

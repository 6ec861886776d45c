"""The floor: what the machine can do at best, and how much work a piece of work is.

The matrix rate is that of one large product in the dtype, the bandwidth that of one large copy. FLOPs (two a
multiply-add) are those of matrix products, convolutions and attention. Bytes are what PyTorch's operations read and
write, each operation by itself: caches and fused kernels move less, so shares above 100 % are possible.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry, shape_wrapper

from benchmarks.comparison import DTYPES
from benchmarks.timing import interleave, spread


def rates(device: str, dtype: str, quick: bool = False) -> dict[str, float]:
    """Measure a device.

    Returns:
        `matrix` in FLOPs per second for that dtype, `bandwidth` in bytes per second (read plus written).
    """
    side = 256 if quick else 2048 if device == 'cpu' else 8192
    kind = DTYPES[dtype]
    a, b = (torch.randn(side, side, device=device).to(kind) for _ in range(2))
    source = torch.empty(
        (2**20 if quick else 2**26) * (1 if device == 'cpu' else 16), dtype=torch.uint8, device=device
    )
    source.fill_(1)
    target = torch.empty_like(source)
    product, copy = interleave([lambda: a @ b, lambda: target.copy_(source)], device, 15, 4.0)
    return {
        'matrix': 2 * side**3 / spread(product)['median'],
        'bandwidth': 2 * source.numel() / spread(copy)['median'],
    }


def count(work: Callable[[], object]) -> dict[str, int]:
    """Count FLOPs and bytes of one piece of work, by running it once."""
    with _Counter() as counter:
        work()
    return {'flops': counter.flops, 'bytes': counter.bytes}


def _attention(query, key, value, *args, out_shape=None, **kwargs) -> int:
    batch, heads, queries, dims = query
    return 2 * batch * heads * queries * key[2] * (dims + value[3])


def _attention_backward(gradient, query, key, value, *args, out_shape=None, **kwargs) -> int:
    """The logits once more, and the gradients of the three inputs and of the weights."""
    batch, heads, queries, dims = query
    return 2 * batch * heads * queries * key[2] * (3 * dims + 2 * value[3])


_FORMULAS = {
    **flop_registry,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: shape_wrapper(_attention),
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: shape_wrapper(_attention_backward),
}


class _Counter(TorchDispatchMode):
    """Adds up FLOPs, and what operations read and write; views move nothing."""

    def __init__(self):
        super().__init__()
        self.flops = self.bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        formula = _FORMULAS.get(func._overloadpacket)
        if formula is None:
            with self:
                parts = func.decompose(*args, **kwargs)
            if parts is not NotImplemented:
                return parts
        out = func(*args, **kwargs)
        if formula is not None:
            self.flops += int(formula(*args, **kwargs, out_val=out))
        if not func.is_view:
            self.bytes += sum(map(_size, tree_leaves((args, kwargs, out))))
        return out


def _size(value: object) -> int:
    if not isinstance(value, Tensor):
        return 0
    if value.layout != torch.strided:  # what it holds, not what it stands for
        return sum(map(_size, (value.crow_indices(), value.col_indices(), value.values())))
    return value.numel() * value.element_size()

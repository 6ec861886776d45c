"""A CUDA device without a driver: fake tensors, which have a device, a shape and a dtype, but no values."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from unittest import mock

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

try:
    from deformops.registry import Backend, msda
except ImportError:  # it needs Python 3.12 or 3.13
    msda = None

COPIES = (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default)


class OneDevice(TorchDispatchMode):
    """Refuses operations on tensors of two devices; also those that a GPU runs after a copy, such as an index."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor) and leaf.ndim]
        devices = {tensor.device.type for tensor in tensors}
        assert len(devices) < 2 or func in COPIES, f'{func} gets tensors of {sorted(devices)}'
        return func(*args, **kwargs)


@contextmanager
def fake_cuda(amp: torch.dtype | None = None) -> Iterator[None]:
    """Run operations on fake tensors, those on 'cuda' under autocast to ``amp``.

    Sizes that depend on values are unknown numbers. deformops runs the fake versions of its Triton kernels.
    """
    before = torch.is_autocast_enabled('cuda'), torch.get_autocast_dtype('cuda')
    torch.set_autocast_enabled('cuda', amp is not None)  # torch.autocast itself needs a driver
    torch.set_autocast_dtype('cuda', amp or before[1])
    try:
        with FakeTensorMode(shape_env=ShapeEnv()), OneDevice(), _kernels():
            yield
    finally:
        torch.set_autocast_enabled('cuda', before[0])
        torch.set_autocast_dtype('cuda', before[1])
        torch.clear_autocast_cache()


@contextmanager
def _kernels() -> Iterator[None]:
    """Let deformops choose its Triton kernels, whose operators have fake versions, as on a recent GPU."""
    if msda is None:
        yield
        return
    with mock.patch('torch.cuda.is_available', return_value=True):
        if not msda.is_registered(Backend.TRITON):  # an earlier test has asked for it, without a GPU
            importlib.reload(sys.modules['deformops.backends.triton.msda'])
        assert msda.is_registered(Backend.TRITON), msda.unavailable_reason(Backend.TRITON)
    with (
        mock.patch.object(sys.modules['deformops.registry.msda'], 'sm_version_for', lambda device: (9, 0)),
        mock.patch('torch.cuda.device', lambda device: nullcontext()),
    ):
        yield


def to_fake_cuda(model: nn.Module) -> nn.Module:
    """Put parameters and buffers on the fake device, as ``model.cuda()`` does; other tensors stay where they are."""
    moved = {}

    def move(value: Tensor) -> Tensor:
        if id(value) not in moved:
            new = torch.empty(value.shape, dtype=value.dtype, device='cuda')
            moved[id(value)] = nn.Parameter(new, value.requires_grad) if isinstance(value, nn.Parameter) else new
        return moved[id(value)]

    for module in model.modules():
        for tensors in (module._parameters, module._buffers):
            tensors.update({name: move(value) for name, value in tensors.items() if value is not None})
    return model

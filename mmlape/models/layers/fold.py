"""The PE kept between forwards of inference, where it depends on the weights and the grid only.

What a grid's tokens meet, LaPE's chain of norms included, is computed once per weights, grid and precision. It is used
again only while every tensor that it came from is the same: the same memory, the same version (which every in-place
operation raises, an optimiser's step and ``load_state_dict`` too) and, on the CPU, the same values. On other devices
comparing values would make the host wait, so a write there that leaves no trace, one through ``tensor.data``, is seen
at the next ``train()`` or ``eval()`` of the model: those forget everything. Such writes are what MMEngine's EMA does,
between which and an evaluation stands always a call of ``eval()``.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence

import torch
from torch import Tensor, nn

MAX_ENTRIES = 4
MAX_BYTES = 256 * 2**20
"""Kept at most, beside the newest entry: (N, D) for each of the L layers is 75 MiB for ViT-S at 1024 x 1024."""


def norm_tensors(norms: Sequence[nn.Module]) -> list[Tensor] | None:
    """Every parameter and buffer of plain norms; None if one is more than that (has parts, or hooks that must run)."""
    tensors = []
    for norm in norms:
        if norm._modules or norm._forward_hooks or norm._forward_pre_hooks:
            return None
        tensors += [t for t in (*norm._parameters.values(), *norm._buffers.values()) if t is not None]
    return tensors


def must_compute(device: torch.device) -> bool:
    """Whether something follows the operations, so that none may be left out.

    That is compiling, tracing, the capture of a CUDA graph, function transforms, and modes such as a FLOP counter's.
    """
    if torch.compiler.is_compiling() or torch.jit.is_tracing():
        return True
    if torch._C._len_torch_dispatch_stack() or torch._C._functorch.maybe_current_level() is not None:
        return True
    return device.type == 'cuda' and torch.cuda.is_current_stream_capturing()


class _Seen:
    """Tensors as they were: an alias keeps each one's memory from being given to another."""

    def __init__(self, tensors: Iterable[Tensor]):
        self.states = [
            (t.detach(), t._version, t.detach().clone() if t.device.type == 'cpu' else None) for t in tensors
        ]

    def unchanged(self, tensors: Sequence[Tensor]) -> bool:
        return len(tensors) == len(self.states) and all(
            t.dtype == alias.dtype
            and t._version == version
            and t.is_set_to(alias)
            and (values is None or torch.equal(t, values))
            for t, (alias, version, values) in zip(tensors, self.states)
        )


class PECache:
    """The PE streams of the last few grids; copies of a model begin with an empty one."""

    def __init__(self):
        self._entries: dict[Hashable, tuple[_Seen, object, int]] = {}

    def __deepcopy__(self, memo) -> 'PECache':
        return PECache()

    def __reduce__(self):
        return PECache, ()

    def __len__(self) -> int:
        return len(self._entries)

    def clear(self) -> None:
        self._entries.clear()

    def get(self, key: Hashable, tensors: Sequence[Tensor], compute: Callable[[], object]):
        """What ``compute()`` gives, from before if none of ``tensors``, which it reads, has changed since.

        Args:
            key: whatever else the result depends on.
            tensors: at least one.
            compute: returns a tensor or a nest of tuples of tensors.
        """
        device = tensors[0].device
        if any(t.is_inference() for t in tensors):  # they have no version
            return compute()
        kind = device.type
        precision = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
        key = (key, device, precision)
        entry = self._entries.pop(key, None)
        if entry is None or not entry[0].unchanged(tensors):
            with torch.inference_mode(False), torch.no_grad():
                result = compute()
            entry = (_Seen(tensors), result, sum(leaf.nbytes for leaf in _leaves(result)))
        self._entries[key] = entry
        self._trim()
        return entry[1]

    def _trim(self) -> None:
        """Drop the entries not used for longest, never the newest."""
        for key in list(self._entries)[:-1]:
            total = sum(entry[2] for entry in list(self._entries.values()))
            if len(self._entries) <= MAX_ENTRIES and total <= MAX_BYTES:
                return
            self._entries.pop(key, None)


def _leaves(nest: object) -> Iterable[Tensor]:
    if isinstance(nest, Tensor):
        yield nest
    else:
        for part in nest:
            yield from _leaves(part)

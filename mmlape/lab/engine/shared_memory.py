"""Whether the batches that a data loader's processes hold ready fit into shared memory, /dev/shm.

If one does not, the process that made it drops it, and training waits for it. Docker gives a
container 64 MB.
"""

import shutil
from collections.abc import Iterable
from typing import Any

from mmengine.structures import BaseDataElement
from torch import Tensor
from torch.utils.data import DataLoader

from mmlape.errors import TrainingError
from mmlape.lab.engine.seeding import isolated

SHARED = '/dev/shm'
AMPLE = 4 << 30
"""Bytes that are enough without a look at the images."""


def require_shared_memory(loader: DataLoader, key: str) -> None:
    """Raise TrainingError if the batches of a data loader do not fit.

        workers x prefetch_factor x batch_size x largest of three samples

    Args:
        loader: Its sampler is not used, and random states stay.
        key: Of the configuration, for the message.
    """
    try:
        free = shutil.disk_usage(SHARED).free
    except OSError:  # another system
        return
    if not loader.num_workers or free >= AMPLE:
        return
    dataset, prefetched = loader.dataset, loader.prefetch_factor or 1
    size = getattr(loader, 'batch_size', None) or getattr(loader.batch_sampler, 'batch_size', 1)
    with isolated(0):
        chosen = sorted({0, len(dataset) // 2, len(dataset) - 1})
        largest = max(tensor_bytes(dataset[index]) for index in chosen)
    needed = loader.num_workers * prefetched * size * largest
    if needed > free:
        raise TrainingError(
            f'{SHARED} has {free / 2**20:,.1f} MiB free, and the batches that {key} holds ready need '
            f'about {needed / 2**20:,.1f} ({loader.num_workers} processes x {prefetched} batches x '
            f'{size} images x {largest / 2**20:,.2f} MiB): give more shared memory (docker run '
            f'--shm-size=8g), or --cfg-options {key}.num_workers=0 {key}.persistent_workers=False'
        )


def tensor_bytes(sample: Any) -> int:
    """Return the size of the tensors in a sample, which travel through shared memory."""
    if isinstance(sample, Tensor):
        return sample.numel() * sample.element_size()
    inner: Iterable = ()
    if isinstance(sample, BaseDataElement):
        inner = sample.all_values()
    elif isinstance(sample, dict):
        inner = sample.values()
    elif isinstance(sample, list | tuple):
        inner = sample
    elif isinstance(getattr(sample, 'tensor', None), Tensor):  # MMDetection's boxes
        inner = (sample.tensor,)
    return sum(map(tensor_bytes, inner))

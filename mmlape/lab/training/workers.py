"""Processes of data loaders: signals are their parent's, batches fit into shared memory, and all of them end."""

import contextlib
import functools
import io
import os
import pickle
import re
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from mmengine.runner.base_loop import BaseLoop
from torch.utils.data import DataLoader

from mmlape.checkpoint.closed_world import as_parent
from mmlape.errors import MMLaPEError, TrainingError
from mmlape.lab.runs.signals import STOP_SIGNALS
from mmlape.lab.training.seeding import isolated

BATCH_TIME = 1800
"""Seconds after which a batch that the processes of a data loader do not deliver is an error."""
SHARED = '/dev/shm'
"""Where batches travel from the processes of a data loader; Docker gives a container 64 MB."""
AMPLE = 4 << 30
"""Bytes of it that are enough without a look at the images."""


def adopt(loader: DataLoader) -> None:
    """Leave signals to this process, and end with an error where the processes of a loader do not deliver a batch."""
    loader.worker_init_fn = as_parent(functools.partial(init_worker, loader.worker_init_fn))
    if loader.num_workers and not loader.timeout:
        loader.timeout = BATCH_TIME  # else torch waits for ever for a process that is stopped


def init_worker(inner: Callable[[int], None] | None, number: int) -> None:
    """Start a data loader's worker, which SIGTERM ends only if its parent sends it.

    Slurm, a launcher and a terminal's Ctrl-C reach the workers, too, without which the parent could
    not reach its next step. ``inner`` is called first.
    """
    if inner is not None:
        inner(number)
    for ignored in STOP_SIGNALS[1:]:
        signal.signal(ignored, signal.SIG_IGN)
    if hasattr(signal, 'sigwaitinfo'):
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        parent = os.getppid()
        threading.Thread(target=_end_with_parents_signal, args=(parent,), daemon=True).start()


def _end_with_parents_signal(parent: int) -> None:
    while signal.sigwaitinfo({signal.SIGTERM}).si_pid != parent:
        pass
    os._exit(0)


class _TensorCounter(pickle.Pickler):
    """Counts the bytes of the tensors in what it pickles: they alone travel through shared memory."""

    bytes = 0

    def persistent_id(self, value: Any) -> str | None:
        if not isinstance(value, torch.Tensor):
            return None
        self.bytes += value.nbytes
        return 'tensor'


def tensor_bytes(sample: Any) -> int:
    """Return the size of the tensors in a sample."""
    counter = _TensorCounter(io.BytesIO())
    counter.dump(sample)
    return counter.bytes


def require_shared_memory(loader: DataLoader, key: str) -> None:
    """Raise TrainingError if the batches that a data loader's processes hold ready do not fit into shared memory.

    A process drops a batch that does not, and training waits for it. The size is that of the largest of three samples.
    """
    if not loader.num_workers or not os.path.isdir(SHARED) or shutil.disk_usage(SHARED).free >= AMPLE:
        return
    dataset, free = loader.dataset, shutil.disk_usage(SHARED).free
    size = getattr(loader, 'batch_size', None) or getattr(loader.batch_sampler, 'batch_size', 1)
    with isolated(0):
        chosen = sorted({0, len(dataset) // 2, len(dataset) - 1})
        largest = max(tensor_bytes(dataset[index]) for index in chosen)
    needed = loader.num_workers * (loader.prefetch_factor or 1) * size * largest
    if needed > free:
        raise TrainingError(
            f'{SHARED} has {free / 2**20:,.1f} MiB free, and the batches that {key} holds ready need about '
            f'{needed / 2**20:,.1f}: give more shared memory (docker run --shm-size=8g), or --cfg-options '
            f'{key}.num_workers=0'
        )


def end_workers(*loops: BaseLoop | dict | None) -> None:
    """End the workers of the data loaders of loops that are done, or have failed.

    A runner is freed by Python's search for cycles, which closes the queues to the workers before
    the data loader can tell them to end. So torch waits five seconds for them and kills them.
    """
    for loop in loops:
        for name in ('dataloader', 'dataloader_iterator'):
            holder = getattr(loop, name, None)
            iterator = getattr(holder, '_iterator', None)
            if hasattr(iterator, '_shutdown_workers'):
                iterator._shutdown_workers()
                holder._iterator = None


@contextlib.contextmanager
def plain_worker_errors() -> Iterator[None]:
    """Remove the traceback of a data loader's worker from the message of an error that needs none."""
    try:
        yield
    except MMLaPEError as error:
        text = re.search(rf'\n\S*\b{type(error).__name__}: (.*)', str(error), re.DOTALL)
        if text is None:
            raise
        raise type(error)(text[1].strip()) from error

"""The machine of a run, and what the run costs there."""

import os
import resource
import socket

import torch
from mmengine.dist import get_world_size


def describe_machine() -> dict[str, str]:
    """Return ``host`` and ``device``: the GPU's name, or the number of CPU cores."""
    cores = len(os.sched_getaffinity(0))
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else f'CPU, {cores} cores'
    return dict(host=socket.gethostname(), device=device)


def cost(seconds: float, seconds_per_iter: float | None, parameters: int) -> dict:
    """Return the cost of a run so far.

    Args:
        seconds: Wall-clock time, evaluations and earlier parts included.
        seconds_per_iter: Mean over iterations, without evaluations.
        parameters: Number of parameters, frozen ones included.

    Returns:
        ``parameters``, ``peak_memory_mib`` with ``memory_kind``, ``seconds_per_iter``, ``train_seconds`` and
        ``gpu_hours`` (over all processes; None without a GPU). Memory is that of one process, the first.
    """
    gpu = torch.cuda.is_available()
    if gpu:
        peak, kind = torch.cuda.max_memory_allocated() / 2**20, 'allocated on one GPU'
    else:
        peak, kind = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10, 'resident in one process'
    return dict(
        parameters=parameters,
        peak_memory_mib=round(peak, 1),
        memory_kind=kind,
        seconds_per_iter=seconds_per_iter,
        train_seconds=round(seconds, 2),
        gpu_hours=seconds * get_world_size() / 3600 if gpu else None,
    )

"""The throughput of training on one process and on two (DistributedDataParallel; gloo on the CPU, NCCL on GPUs)."""

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.comparison import Comparison, Settings, Side

ROOT = Path(__file__).resolve().parents[2]


def comparisons(settings: Settings) -> list[Comparison]:
    """Return one per dtype, at the smallest size: steps of one process, and of two with as many images each."""
    if settings.device == 'cuda':
        import torch

        if torch.cuda.device_count() < 2:
            return []
    return [_comparison(settings, min(settings.sizes), dtype) for dtype in settings.dtypes]


def _comparison(settings: Settings, size: int, dtype: str) -> Comparison:
    def side(processes: int) -> Callable:
        def build():
            return lambda: seconds_per_image(settings, size, dtype, processes)

        return build

    images = settings.images(size)
    return Comparison(
        suite='processes',
        case=f'{settings.arch}, LaPE: two processes against one, one thread each',
        work='an image of a training step',
        shape=f'{images} x 3 x {size} x {size} per process',
        dtype=dtype,
        sides=[Side('1 process', side(1)), Side('2 processes', side(2))],
        items=1,
        timed=False,
        counted=False,
        reports=True,
        note='the figure is the median time of a step over all images of that step; each round starts new processes',
    )


def seconds_per_image(settings: Settings, size: int, dtype: str, processes: int) -> float:
    """Start torchrun and return what its first process measured."""
    chosen = json.dumps(dict(dataclasses.asdict(settings), sizes=[size], dtypes=[dtype]))
    command = [sys.executable, '-m', 'torch.distributed.run', '--standalone', '--nproc-per-node', str(processes)]
    threads = dict(OMP_NUM_THREADS='1', PYTHONPATH=str(ROOT))
    done = subprocess.run(
        [*command, '-m', 'benchmarks.worker', chosen],
        env={**os.environ, **threads}, capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f'torchrun ended with {done.returncode}: {done.stderr.strip().splitlines()[-1:]}')
    return float(done.stdout.strip().splitlines()[-1])

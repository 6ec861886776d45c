"""Peak memory of a side in a process of its own: `python -m benchmarks.memory SUITE NAME SIDE SETTINGS`.

On a GPU it is what torch has allocated at most, weights included. On the CPU it is how far the process grew while it
built the side and did its work twice, after a first time that imported and cached what it needs.
"""

import ctypes
import dataclasses
import gc
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.comparison import Settings

ROOT = Path(__file__).resolve().parents[1]


def peak_memory(suite: str, name: str, side: str, settings: Settings) -> float:
    """Return a side's peak memory in MiB, measured by a child process.

    Raises:
        RuntimeError: The child failed; the message is its last line.
    """
    words = [suite, name, side, json.dumps(dataclasses.asdict(settings))]
    # large blocks go back to the system when they are freed, so that the peak is that of what is in use
    environment = dict(os.environ, PYTHONPATH=str(ROOT), MALLOC_MMAP_THRESHOLD_=str(2**18))
    command = [sys.executable, '-m', 'benchmarks.memory', *words]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=900, check=False)
    if done.returncode:
        raise RuntimeError(f'ended with {done.returncode}: {" ".join(done.stderr.strip().splitlines()[-1:])}')
    return float(done.stdout.strip().splitlines()[-1])


def _growth(build: Callable) -> float:
    """Return by how many MiB the peak of the resident set grows."""
    build()()  # what the first time imports and caches
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    before = _status('VmRSS')
    Path('/proc/self/clear_refs').write_text('5')  # resets the peak
    work = build()
    work()
    work()
    return (_status('VmHWM') - before) / 1024


def _status(field: str) -> int:
    """Return a field of the process's status in KiB."""
    lines = Path('/proc/self/status').read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1])


def main() -> None:
    from benchmarks.suites import comparisons

    suite, name, side, settings = *sys.argv[1:4], Settings(**json.loads(sys.argv[4]))
    build = next(one for one in comparisons(suite, settings) if one.name == name).sides[side]
    if settings.device == 'cuda':
        import torch

        work = build()
        work()
        torch.cuda.reset_peak_memory_stats()
        work()
        print(torch.cuda.max_memory_allocated() / 2**20)
    else:
        print(_growth(build))


if __name__ == '__main__':
    main()

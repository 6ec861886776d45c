"""Runs as processes on this machine: several side by side where they fit, never two on one GPU."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mmlape.errors import ConfigError
from mmlape.experiments.launchers.base import Job, Launcher, import_path
from mmlape.experiments.launchers.devices import Device, DevicePool, Slot, visible_devices
from mmlape.experiments.study import PlannedRun
from mmlape.mim import mim_root

STOP_SIGNALS = ((signal.SIGTERM, 60), (signal.SIGKILL, 5))
"""What ends a process, and how many seconds each signal is given."""


@dataclass(kw_only=True)
class LocalJob(Job):
    """A training process.

    Args:
        process: The process.
        slot: Its GPUs.
        lock: The start lock of the run.
    """

    process: subprocess.Popen
    slot: Slot
    lock: int

    @property
    def place(self) -> str:
        """Its GPUs."""
        return f'on GPU {self.slot.visible}' if self.slot.devices else ''

    def poll(self) -> int | None:
        """Return the exit status, below 0 for a signal; None while it runs."""
        return self.process.poll()

    def release(self) -> None:
        """Release the run and its GPUs."""
        os.close(self.lock)
        self.slot.release()


class LocalLauncher(Launcher):
    """Starts runs as processes.

    Args:
        processes: Processes of one run, one per GPU.
        max_parallel: How many runs at a time; default: as many as there are GPUs for, or cores without GPUs.
        devices: The GPUs; default: all that are visible.
        pool: Builds the pool of GPUs.

    Raises:
        ConfigError: There are fewer GPUs than one run needs.
    """

    def __init__(
        self,
        processes: int = 1,
        max_parallel: int | None = None,
        devices: Sequence[Device] | None = None,
        pool: Callable[[Sequence[Device]], DevicePool] = DevicePool,
    ) -> None:
        devices = visible_devices() if devices is None else devices
        if devices and len(devices) < processes:
            raise ConfigError(
                f'--processes {processes}: {len(devices)} GPUs are visible here. Ask for fewer, make more visible '
                '(CUDA_VISIBLE_DEVICES), or use --slurm'
            )
        self.processes, self.pool = processes, pool(devices) if devices else None
        cores = len(os.sched_getaffinity(0))
        fitting = len(devices) // processes if devices else max(1, cores // processes)
        self.max_parallel = max_parallel or fitting
        parallel = min(self.max_parallel, fitting) if devices else self.max_parallel
        self.threads = max(1, cores // (parallel * processes))

    def describe(self) -> str:
        """Return how many runs it starts at a time, and on what."""
        side = f'{self.max_parallel} side by side' if self.max_parallel > 1 else 'one after the other'
        if self.pool:
            free = len(self.pool.free())
            return f'{self.processes} of {len(self.pool.devices)} GPUs a run ({free} free now), {side}'
        what = 'process' if self.processes == 1 else 'processes'
        return f'no GPU here: {self.processes} CPU {what} a run, {side}'

    def reserve(self, running: int) -> Slot | None:
        """Reserve the GPUs of one more run."""
        if running >= self.max_parallel:
            return None
        return self.pool.acquire(self.processes) if self.pool else Slot()

    def start(self, planned: PlannedRun, lock: int, slot: Slot) -> LocalJob:
        """Start or resume a run, which inherits its start lock and the locks of its GPUs."""
        command, environment = self.command(planned), self._environment(slot)
        with open(planned.log, 'a', encoding='utf-8') as output:
            output.write(f'$ {" ".join(command)}\n')
            output.flush()
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
                pass_fds=[lock, *slot.locks],
            )
        return LocalJob(planned=planned, process=process, slot=slot, lock=lock)

    def command(self, planned: PlannedRun) -> list[str]:
        """Return the command that trains or resumes a run."""
        config, *options = planned.train_args
        if planned.action != 'start':
            options.insert(0, '--resume')
        tools = mim_root() / 'tools'
        if self.processes > 1:
            return ['bash', str(tools / 'dist_train.sh'), config, str(self.processes), *options]
        return [sys.executable, str(tools / 'train.py'), config, *options]

    def _environment(self, slot: Slot) -> dict[str, str]:
        environment = dict(os.environ, PYTHON=sys.executable, PYTHONUNBUFFERED='1', PYTHONPATH=import_path())
        environment.setdefault('OMP_NUM_THREADS', str(self.threads))
        if slot.devices:
            environment['CUDA_VISIBLE_DEVICES'] = slot.visible
        return environment

    def stop(self, jobs: Sequence[LocalJob]) -> str:
        """Stop runs with all their processes; return how many."""
        for number, patience in STOP_SIGNALS:
            for job in jobs:
                _signal(job.process, number)
            deadline = time.monotonic() + patience
            for job in jobs:
                try:
                    job.process.wait(max(0.0, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    continue
        for job in jobs:
            _signal(job.process, signal.SIGKILL)  # children that outlived the first process of their group
        return f'{len(jobs)} stopped' if jobs else ''


def _signal(process: subprocess.Popen, number: int) -> None:
    try:
        os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):
        return

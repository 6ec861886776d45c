"""Runs as processes on this machine: several side by side where they fit, never two on one GPU."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import mmlape
from mmlape.errors import ConfigError
from mmlape.experiments.launchers.devices import Device, DevicePool, Group, visible_devices
from mmlape.experiments.study import PlannedRun
from mmlape.mim import mim_root
from mmlape.runs.run import Run

PATIENCE = ((signal.SIGTERM, 20), (signal.SIGKILL, 5))  # seconds for each


@dataclass
class Process:
    """A training that was started here.

    Args:
        room: The GPUs that it has.
        claim: The lock of the run.
    """

    planned: PlannedRun
    process: subprocess.Popen
    room: Group
    claim: int
    begun: float = field(default_factory=time.monotonic)
    told: str = ''
    failure: None = None  # its exit status and its log have to do

    def poll(self) -> int | None:
        """Its exit status, below 0 for a signal; None while it runs."""
        return self.process.poll()

    def again(self, run: Run) -> bool:
        """Whether to try once more; what ends a process would end the next one."""
        return False

    def release(self) -> None:
        """Gives back what it held."""
        os.close(self.claim)
        self.room.release()


class LocalLauncher:
    """Starts trainings here.

    Args:
        processes: Of one run, one a GPU.
        parallel: The most runs at a time; by default as many as there are GPUs for, or, without GPUs, as many as
            there are cores for.
        devices: The GPUs; by default all that are visible.

    Raises:
        ConfigError: There are fewer GPUs than one run needs.
    """

    def __init__(
        self,
        processes: int = 1,
        parallel: int | None = None,
        devices: Sequence[Device] | None = None,
        pool: Callable[[Sequence[Device]], DevicePool] = DevicePool,
    ) -> None:
        devices = visible_devices() if devices is None else devices
        if devices and len(devices) < processes:
            raise ConfigError(
                f'--gpus {processes}: {len(devices)} visible here. Ask for fewer, make more visible '
                '(CUDA_VISIBLE_DEVICES), or use --launcher slurm'
            )
        self.processes, self.pool = processes, pool(devices) if devices else None
        cores = len(os.sched_getaffinity(0))
        fitting = len(devices) // processes if devices else max(1, cores // processes)
        self.lanes = parallel or fitting
        self.threads = max(1, cores // (min(self.lanes, fitting) * processes if devices else self.lanes * processes))

    def describe(self) -> str:
        """How many runs it starts, on what."""
        side = f'{self.lanes} side by side' if self.lanes > 1 else 'one after the other'
        if self.pool:
            free = len(self.pool.free())
            return f'{self.processes} of {len(self.pool.devices)} GPUs a run ({free} free now), {side}'
        what = 'process' if self.processes == 1 else 'processes'
        return f'no GPU here: {self.processes} CPU {what} a run, {side}'

    def adopt(self, planned: PlannedRun) -> None:
        """Trainings that somebody else started are not this launcher's."""
        return

    def reserve(self, running: int) -> Group | None:
        """Room for one more run beside so many; None if there is none now."""
        if running >= self.lanes:
            return None
        return self.pool.take(self.processes) if self.pool else Group((), ())

    def start(self, planned: PlannedRun, claim: int, room: Group) -> Process:
        """Starts or resumes a run, which inherits its claim and the locks of its GPUs."""
        command, environment = self.command(planned), self._environment(room)
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
                pass_fds=[claim, *room.locks],
            )
        return Process(planned, process, room, claim, told=f'on GPU {room.visible}' if room.devices else '')

    def command(self, planned: PlannedRun) -> list[str]:
        """The process that trains a run, or the rest of it."""
        config, *options = planned.words
        if planned.action != 'start':
            options.insert(0, '--resume')
        tools = mim_root() / 'tools'
        if self.processes > 1:
            return ['bash', str(tools / 'dist_train.sh'), config, str(self.processes), *options]
        return [sys.executable, str(tools / 'train.py'), config, *options]

    def _environment(self, room: Group) -> dict[str, str]:
        environment = dict(os.environ, PYTHON=sys.executable, PYTHONUNBUFFERED='1', PYTHONPATH=import_path())
        environment.setdefault('OMP_NUM_THREADS', str(self.threads))
        if room.devices:
            environment['CUDA_VISIBLE_DEVICES'] = room.visible
        return environment

    def refresh(self, jobs: Sequence[Process]) -> None:
        """Processes tell by themselves how they are."""

    def stop(self, jobs: Sequence[Process]) -> str:
        """Ends trainings with all their processes; returns what to say about it."""
        for number, patience in PATIENCE:
            for job in jobs:
                _signal(job.process, number)
            deadline = time.monotonic() + patience
            for job in jobs:
                try:
                    job.process.wait(max(0.0, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    continue
        for job in jobs:
            _signal(job.process, signal.SIGKILL)  # what the first process of a group left behind
        return f'{len(jobs)} stopped' if jobs else ''


def _signal(process: subprocess.Popen, number: int) -> None:
    try:
        os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):
        return


def import_path() -> str:
    """PYTHONPATH with this package in it, for processes that are started elsewhere."""
    package = str(Path(mmlape.__file__).resolve().parents[1])
    others = [path for path in os.environ.get('PYTHONPATH', '').split(os.pathsep) if path not in ('', package)]
    return os.pathsep.join([package, *others])

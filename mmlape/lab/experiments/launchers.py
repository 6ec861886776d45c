"""How runs are started: what the scheduler expects of a launcher, and the processes on this machine.

Several runs go side by side where they fit, never two on one GPU, whichever process starts them,
unless `--per-gpu` says how many may share one.

A GPU is reserved by locking a file that is named after it, in a folder of this user on this
machine; a share of it by a file of its own. The training process inherits the lock, so a GPU stays
reserved while its training lives, even if the process that started it is gone.
"""

import getpass
import glob
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import portalocker

import mmlape
from mmlape.errors import ConfigError, TrainingError
from mmlape.lab.experiments.planning import PlannedRun
from mmlape.lab.runs.failures import oom_kills
from mmlape.lab.runs.record import SHARING, available_cores, lock_holder, take_lock
from mmlape.lab.runs.run import Run
from mmlape.lab.runs.schema import Failure
from mmlape.openmmlab.mim import mim_root

_LIST_DEVICES = """
import torch
for index in range(torch.cuda.device_count()):
    print('device', index, torch.cuda.get_device_properties(index).uuid)
"""


@dataclass(frozen=True)
class Device:
    """A GPU: its name in CUDA_VISIBLE_DEVICES, and its UUID, the same for every process, whatever is visible to it."""

    name: str
    key: str


@dataclass(frozen=True)
class Slot:
    """The GPUs reserved for one run, none on the CPU.

    The locks are held until `release`, or until the last process that inherited them ends.
    """

    devices: tuple[Device, ...] = ()
    locks: tuple[int, ...] = ()

    @property
    def visible(self) -> str:
        """The value of CUDA_VISIBLE_DEVICES."""
        return ','.join(device.name for device in self.devices)

    def release(self) -> None:
        """Close the locks."""
        for lock in self.locks:
            os.close(lock)


def visible_devices() -> list[Device]:
    """Return the GPUs that CUDA_VISIBLE_DEVICES leaves to this process.

    TrainingError if torch cannot list them. Another process asks for them: CUDA is not initialised
    here, and CUDA itself decides which GPU a number means.
    """
    shown = os.environ.get('CUDA_VISIBLE_DEVICES')
    if shown == '':
        return []
    result = subprocess.run([sys.executable, '-c', _LIST_DEVICES], capture_output=True, text=True, check=False)
    if result.returncode:
        last = (result.stderr.strip().splitlines() or ['no message'])[-1]
        raise TrainingError(f'torch cannot list the GPUs ({last}): check with `mmlape doctor`')
    keys = re.findall(r'^device \d+ (\S+)$', result.stdout, re.MULTILINE)
    names = [name.strip() for name in (shown or '').split(',') if name.strip()]
    return [Device(names[index] if names else str(index), uuid) for index, uuid in enumerate(keys)]


class DevicePool:
    """Reserves GPUs, or shares of them, by locks in a folder.

    A GPU is reserved by one run alone, or in shares. Calls with other numbers of shares each keep to
    their own.

    Args:
        devices: The GPUs.
        folder: Where the locks are; by default in the machine's temporary folder, one of this user.
        shares: How many runs may share a GPU; 1 reserves it alone.
    """

    def __init__(self, devices: Sequence[Device], folder: str | Path | None = None, shares: int = 1) -> None:
        self.devices, self.shares = tuple(devices), shares
        self.folder = Path(folder or Path(tempfile.gettempdir()) / f'mmlape-{getpass.getuser()}' / 'devices')

    def acquire(self, count: int) -> Slot | None:
        """Reserve ``count`` GPUs; return None, and reserve none, if fewer are free."""
        try:
            with self._exclusive():
                locked = [(device, take_lock(self._free_file(device))) for device in self.free()[:count]]
        except OSError as error:
            raise TrainingError(f'{self.folder}, which holds the locks of GPUs: {error.strerror}') from error
        held = {device: lock for device, lock in locked if lock is not None}
        slot = Slot(tuple(held), tuple(held.values()))
        if len(held) < count:
            slot.release()
            return None
        return slot

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Let one process choose at a time: of two that each lock a half, neither would have enough."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with open(self.folder / '.choosing', 'w') as file:
            portalocker.lock(file, portalocker.LockFlags.EXCLUSIVE)
            yield

    def free(self) -> list[Device]:
        """Return the GPUs that have room for one more run now, those with fewer runs first."""
        runs = {device: self._runs_on(device) for device in self.devices}
        open_ones = [device for device in self.devices if runs[device] < self.shares]
        return sorted(open_ones, key=lambda device: runs[device])

    def _runs_on(self, device: Device) -> float:
        """Return how many runs share a GPU now; more than any number if one has it alone."""
        if lock_holder(self._file(device)) is not None:
            return math.inf
        shared = self.folder.glob(f'{glob.escape(self._file(device).stem)}.share*')
        return sum(lock_holder(file) is not None for file in shared)

    def _free_file(self, device: Device) -> Path:
        """Return the file to lock for one more run on a GPU that has room."""
        if self.shares == 1:
            return self._file(device)
        numbers = range(1, self.shares + 1)
        files = (self._file(device).with_suffix(f'.share{number}') for number in numbers)
        return next(file for file in files if lock_holder(file) is None)

    def _file(self, device: Device) -> Path:
        return self.folder / f'{re.sub(r"[^A-Za-z0-9.-]", "_", device.key)}.lock'


@dataclass(kw_only=True)
class Job(ABC):
    """A run that was started; ``started`` is when it was started or found, as of `time.monotonic`."""

    planned: PlannedRun
    started: float = field(default_factory=time.monotonic)
    oom_kills: int = field(default_factory=oom_kills)  # of this machine until then

    @property
    def place(self) -> str:
        """Where it runs, for a line of progress."""
        return ''

    @property
    def failure(self) -> Failure | None:
        """Kind and reason of its failure; None if only exit status and log tell."""
        return None

    @abstractmethod
    def poll(self) -> int | str | None:
        """Return the exit status or a description of how it ended; None while it runs."""

    def can_continue(self, run: Run) -> bool:
        """Return whether another job should resume the run."""
        return False

    def release(self) -> None:  # noqa: B027  (optional)
        """Give back what it held."""


class Launcher(ABC):
    """Starts runs and follows them."""

    @abstractmethod
    def describe(self) -> str:
        """Return how many runs it starts at a time, and on what."""

    def preview(self, plan: Sequence[PlannedRun]) -> Sequence[str]:
        """Return what would be started, for the print of a plan."""
        return ()

    def adopt(self, planned: PlannedRun) -> Job | None:
        """Return the job that an earlier call started for a run, if this launcher can follow it."""
        return None

    @abstractmethod
    def reserve(self, running: int) -> Slot | None:
        """Reserve a slot for one more run beside ``running`` others.

        Return None if there is no free one.
        """

    @abstractmethod
    def start(self, planned: PlannedRun, lock: int, slot: Slot) -> Job:
        """Start or resume a run in a slot.

        The launcher owns ``lock``, the run's start lock, from now on.
        """

    def refresh(self, jobs: Sequence[Any]) -> None:  # noqa: B027  (optional)
        """Update the states of jobs, where `Job.poll` cannot ask for them."""

    @abstractmethod
    def stop(self, jobs: Sequence[Any]) -> str:
        """Stop jobs, or leave them running; return a message about it."""


def import_path() -> str:
    """Return a PYTHONPATH from which other processes import this package."""
    package = str(Path(mmlape.__file__).resolve().parents[1])
    others = [path for path in os.environ.get('PYTHONPATH', '').split(os.pathsep) if path not in ('', package)]
    return os.pathsep.join([package, *others])


STOP_SIGNALS = ((signal.SIGTERM, 60), (signal.SIGKILL, 5))
"""What ends a process, and how many seconds each signal is given."""


@dataclass(kw_only=True)
class LocalJob(Job):
    """The process that trains a run."""

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
        max_parallel: How many runs at a time; default: as many as there are GPUs for, or cores
            without GPUs.
        devices: The GPUs; default: all that are visible.
        per_gpu: How many runs share a GPU, or without GPUs the cores of this machine; default: one
            a GPU.

    Raises:
        ConfigError: There are fewer GPUs than one run needs, or runs of several processes would
            share them.
    """

    def __init__(
        self,
        processes: int = 1,
        max_parallel: int | None = None,
        devices: Sequence[Device] | None = None,
        per_gpu: int | None = None,
    ) -> None:
        if per_gpu is not None and processes > 1:
            raise ConfigError(
                f'--per-gpu {per_gpu}: runs of --processes {processes} have their GPUs alone; leave one of both out'
            )
        devices = visible_devices() if devices is None else devices
        if devices and len(devices) < processes:
            raise ConfigError(
                f'--processes {processes}: {len(devices)} GPUs are visible here. Ask for fewer, '
                'make more visible (CUDA_VISIBLE_DEVICES), or use --slurm'
            )
        self.processes, self.per_gpu = processes, per_gpu or 1
        self.pool = DevicePool(devices, shares=self.per_gpu) if devices else None
        cores = available_cores()
        if devices:
            fitting = len(devices) * self.per_gpu // processes
        else:
            fitting = per_gpu or max(1, cores // processes)
        self.max_parallel = max_parallel or fitting
        parallel = min(self.max_parallel, fitting) if devices else self.max_parallel
        self.threads = max(1, cores // (parallel * processes))

    def describe(self) -> str:
        """Return how many runs it starts at a time, and on what."""
        side = f'{self.max_parallel} side by side' if self.max_parallel > 1 else 'one after the other'
        if self.pool:
            free = len(self.pool.free())
            if self.per_gpu > 1:
                return f'up to {self.per_gpu} runs a GPU, of {len(self.pool.devices)} ({free} with room now), {side}'
            return f'{self.processes} of {len(self.pool.devices)} GPUs a run ({free} free now), {side}'
        what = 'process' if self.processes == 1 else 'processes'
        count = f'{self.threads} thread{"s" * (self.threads > 1)}'
        shares = f', {count} each' if self.per_gpu > 1 else ''
        return f'no GPU here: {self.processes} CPU {what} a run, {side}{shares}'

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
        environment.pop(SHARING, None)
        if self.per_gpu > 1:
            environment[SHARING] = str(self.per_gpu)
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
            # children that outlived the first process of their group
            _signal(job.process, signal.SIGKILL)
        return f'{len(jobs)} stopped' if jobs else ''


def _signal(process: subprocess.Popen, number: int) -> None:
    try:
        os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):
        return

"""A work dir: who writes the record of its run, its checkpoints and its lock.

A lock file is held until its descriptor is closed, or the last process that inherited it ends: no kill leaves one
behind. A child that is passed the descriptor keeps the lock after its parent's death; a child that was only forked (a
data loader's worker) does not.
"""

import contextlib
import json
import os
import re
import resource
import socket
import time
from collections.abc import Sequence
from pathlib import Path

import portalocker
from portalocker import LockFlags

from mmlape.errors import DataError, TrainingError
from mmlape.files import read_json, write_json
from mmlape.lab.runs.schema import (
    ENDED,
    SETTINGS,
    BestEvaluation,
    Cost,
    Evaluation,
    Failure,
    RunRecord,
    append_evaluation,
    read_record,
    write_evaluation,
    write_evaluations,
    write_record,
)

LOCK = '.lock'
RESERVE = '.reserve'
"""A file that is deleted to make room for the record of a run that fails because the disk is full."""
SHARING = 'MMLAPE_SHARING'
"""The variable by which a launcher tells a run how many runs share its GPU, or the cores."""
ATTEMPTS = 4  # lock_holder takes the lock for an instant
# descriptor -> device and inode of the file that it was opened for
_acquired: dict[int, tuple[int, int]] = {}


def _identity(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


def _drop_inherited() -> None:
    for descriptor, file in _acquired.items():
        with contextlib.suppress(OSError):  # closed since then
            if _identity(descriptor) == file:
                os.close(descriptor)
    _acquired.clear()


os.register_at_fork(after_in_child=_drop_inherited)


def take_lock(path: str | Path) -> int | None:
    """Lock a file and write the holder into it.

    Returns:
        The descriptor, which children inherit only if it is passed to them; None if another process
        holds the lock.

    Raises:
        OSError: The file cannot be made, or its file system has no locks.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    for attempt in range(ATTEMPTS):
        try:
            portalocker.lock(descriptor, LockFlags.EXCLUSIVE | LockFlags.NON_BLOCKING)
            break
        except portalocker.AlreadyLocked:
            if attempt == ATTEMPTS - 1:
                os.close(descriptor)
                return None
            time.sleep(0.02)
        except portalocker.LockException as error:
            os.close(descriptor)
            raise OSError(*error.args[0].args) from error
    holder = dict(
        host=socket.gethostname(),
        pid=os.getpid(),
        slurm_job=os.environ.get('SLURM_JOB_ID'),
        since=time.strftime('%Y-%m-%dT%H:%M:%S'),
    )
    os.ftruncate(descriptor, 0)
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.write(descriptor, json.dumps(holder).encode())
    _acquired[descriptor] = _identity(descriptor)
    return descriptor


def lock_holder(path: str | Path) -> dict | None:
    """Return the holder of a lock, or None.

    It has ``host``, ``pid``, ``slurm_job`` (or None) and ``since``.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY)  # another user's, too
    except OSError:
        return None
    try:
        portalocker.lock(descriptor, LockFlags.SHARED | LockFlags.NON_BLOCKING)
    except portalocker.AlreadyLocked:
        unknown = dict(host='unknown', pid=None, slurm_job=None, since=None)
        with contextlib.suppress(DataError):  # it is about to be written
            return read_json(path) or unknown
        return unknown
    except portalocker.LockException:  # a file system without locks: nobody could take it
        return None
    finally:
        os.close(descriptor)
    return None


def lock_run(work_dir: str | Path) -> int:
    """Lock a work dir until the returned descriptor is closed or this process ends.

    Raises:
        TrainingError: Another process holds the lock (the message names it), or files there cannot
            be locked.
    """
    path = Path(work_dir) / LOCK
    try:
        descriptor = take_lock(path)
    except OSError as error:
        raise TrainingError(
            f'cannot lock {path} ({error.strerror}): give another --work-dir, on a file system with flock'
        ) from error
    if descriptor is None:
        other = lock_holder(path) or {}
        where = f' by process {other["pid"]} on {other["host"]}, since {other["since"]}' if other.get('pid') else ''
        raise TrainingError(f'work dir {work_dir} is in use{where}: wait for it, stop it, or give another --work-dir')
    return descriptor


def running_in(work_dir: str | Path) -> dict | None:
    """Return who trains in a work dir now, as `lock_holder`.

    None if nobody does.
    """
    return lock_holder(Path(work_dir) / LOCK)


def checkpoints(work_dir: str | Path) -> list[Path]:
    """Return the resumable checkpoints of a work dir, newest first.

    They are ``iter_N.pth`` and ``epoch_N.pth``, and ``epoch_N_iter_M.pth`` of a run that was
    stopped after N epochs.
    """
    numbered = []
    for path in Path(work_dir).glob('*.pth'):
        match = re.fullmatch(r'(?:iter|epoch)_(\d+)(?:_iter_(\d+))?\.pth', path.name)
        if match:
            numbered.append((int(match[1]), int(match[2] or 0), path))
    return [path for *_, path in sorted(numbered, reverse=True)]


def check_writable(folder: Path, option: str = '--work-dir') -> None:
    """Make a folder; raise TrainingError, which names the option that sets it, if nothing can be written there."""
    probe = folder / f'.writable.{os.getpid()}'
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as error:
        reason = error.strerror or error
        raise TrainingError(f'cannot write into {folder} ({reason}): give another {option}') from error


class Recorder:
    """Writes ``run.json`` and ``evaluations.jsonl`` while a run lasts, on rank 0.

    Attributes:
        record: What `write` writes.
        iteration: The current iteration, counted from 1; 0 before the first.
        evaluations: All evaluations, oldest first; of a run that is resumed those of its earlier part, until `rewind`.
    """

    def __init__(
        self, work_dir: str | Path, record: RunRecord, write: bool = True, evaluations: Sequence[Evaluation] = ()
    ) -> None:
        self.folder = Path(work_dir)
        self.record = record
        self.iteration = 0
        self.writes = write
        self.evaluations = list(evaluations)
        self._spare: int | None = None  # a descriptor for the record of a run that fails because there is no other
        record.state, record.reason, record.failure = 'running', None, None

    @property
    def place(self) -> str:
        """Where the run is, in words."""
        if not self.iteration:
            return 'before the first iteration'
        over = self.iteration > (self.record.max_iters or self.iteration)
        return 'after the last iteration' if over else f'in iteration {self.iteration}'

    def write(self) -> None:
        """Write the record, unless another process has recorded a failure."""
        self.record.updated = time.time()
        if self.writes and not (self.record.state == 'running' and self.failure_of_another()):
            write_record(self.folder, self.record)

    def failure_of_another(self) -> Failure | None:
        """Return the failure that another process of this run has recorded; None if there is none."""
        try:
            now = read_record(self.folder)
        except DataError:  # what is damaged while a run lasts is written anew
            return None
        return now.failure if now and now.state in ENDED else None

    def begin(self) -> None:
        """Write the files for the first time, without an earlier part's failure."""
        self.record.updated = time.time()
        if self.writes:
            (self.folder / RESERVE).write_bytes(os.urandom(1 << 16))
            self._spare = os.open(os.devnull, os.O_RDONLY)
            (self.folder / SETTINGS).unlink(missing_ok=True)
            write_record(self.folder, self.record)
            if self.record.identity:
                write_json(self.folder / SETTINGS, self.record.identity.settings)

    def finish(self) -> None:
        """Record that the run is complete."""
        self.record.state, self.record.finished = 'finished', time.strftime('%Y-%m-%dT%H:%M:%S')
        self._end()

    def fail(self, failure: Failure) -> None:
        """Record a failure, and the iterations that were complete by then."""
        self.record.iter = max(self.record.iter or 0, self.iteration - 1)
        end_by(self.record, failure)
        self._end()

    def _end(self) -> None:
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None
        if self.writes:
            (self.folder / RESERVE).unlink(missing_ok=True)
        self.write()

    def add_evaluation(self, entry: Evaluation, key: str, greater: bool = True) -> None:
        """Record an evaluation as the last one, and the best one by ``metrics[key]``."""
        append_evaluation(self.evaluations, entry)
        if self.writes:
            write_evaluation(self.folder, entry)
        self.record.last, self.record.best = entry, _best(self.evaluations, key, greater)
        self.write()

    def rewind(self, end: int) -> None:
        """Drop an earlier part's evaluations from step ``end`` on, once the checkpoint before it has been loaded."""
        earlier, best = self.evaluations, self.record.best
        self.evaluations = [old for old in earlier if old.step < end]
        if best and best.step >= end:
            key, value = best.key, best.value
            scored = [] if value is None else _scored(earlier, key)
            greater = all(value >= old.metrics[key] for old in scored)
            best = _best(self.evaluations, key, greater)
        self.record.last = self.evaluations[-1] if self.evaluations else None
        self.record.best = best
        self.write()  # first: lines behind the last evaluation of the record do not count
        if self.writes:
            write_evaluations(self.folder, self.evaluations)


def end_by(record: RunRecord, failure: Failure) -> None:
    """Set what a failure that has ended a run makes of its record: 'failed', or 'interrupted' by a signal."""
    record.state = 'interrupted' if failure.kind == 'interrupted' else 'failed'
    record.reason, record.failure = failure.reason, failure


def _scored(evaluations: list[Evaluation], key: str) -> list[Evaluation]:
    return [entry for entry in evaluations if entry.metrics.get(key) is not None]


def _best(evaluations: list[Evaluation], key: str, greater: bool) -> BestEvaluation | None:
    """Return the first of the best evaluations by ``metrics[key]``; None if none has a value."""
    pick = max if greater else min
    best = pick(_scored(evaluations, key), key=lambda entry: entry.metrics[key], default=None)
    if best is None:
        return None
    return BestEvaluation(step=best.step, epoch=best.epoch, metrics=best.metrics, per_class=best.per_class, key=key)


def available_cores() -> int:
    """Return the number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count() or 1


def sharing() -> int | None:
    """Return how many runs may share the GPU or the cores of this one; None where it has them alone."""
    text = os.environ.get(SHARING, '')
    return int(text) if text.isdecimal() and int(text) > 1 else None


def describe_machine() -> tuple[str, str]:
    """Return the host, and the GPU's name or the number of CPU cores."""
    import torch  # here, as a report reads records without torch

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else f'CPU, {available_cores()} cores'
    return socket.gethostname(), device


def cost(seconds: float, seconds_per_iter: float | None, parameters: int, earlier: Cost) -> Cost:
    """Return the cost of a run so far.

    Args:
        seconds: Wall-clock time of this part of the run, evaluations included.
        seconds_per_iter: Mean over iterations, without evaluations.
        parameters: Number of parameters, frozen ones included.
        earlier: The cost of the parts before, which may have had other numbers of processes.
    """
    import torch
    from mmengine.dist import get_world_size

    gpu = torch.cuda.is_available()
    if gpu:
        peak, measured = torch.cuda.max_memory_allocated() / 2**20, 'allocated on one GPU'
    else:
        peak, measured = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10, 'resident in one process')
    gpu_hours = (earlier.gpu_hours or 0.0) + seconds * get_world_size() / 3600
    return Cost(
        parameters=parameters,
        peak_memory_mib=round(peak, 1),
        memory_kind=measured,
        seconds_per_iter=seconds_per_iter,
        train_seconds=round((earlier.train_seconds or 0.0) + seconds, 2),
        gpu_hours=gpu_hours if gpu else None,
    )

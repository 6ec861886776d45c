"""Kinds of failure with their advice, and a run's failure recorded in ``run.json`` by whichever process it happens on.

The process that fails first knows the cause; the others only see a broken connection, or are stopped by the launcher.
So a process that fails leaves a note in the work dir, and process 0, which writes the record, reads the notes.
"""

import contextlib
import errno
import json
import os
import re
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from mmengine.dist import all_gather_object, get_rank

from mmlape.errors import DiskSpaceError, MissingCheckpointError, MMLaPEError, NotFiniteError, TrainingError
from mmlape.files import write_json
from mmlape.runs.record import NOTES, RunRecord, read_record
from mmlape.runs.stopping import Interrupted, StopRequest, stopped_by_sigterm


@dataclass(frozen=True)
class Kind:
    """A kind of failure.

    Args:
        name: As in ``run.json``.
        summary: What happened.
        advice: What to do about it.
        errors: Exceptions of this kind.
        pattern: Found in the message of a RuntimeError of this kind, and in the log of a process that died of it.
    """

    name: str
    summary: str = ''
    advice: str = ''
    errors: tuple[type[BaseException], ...] = ()
    pattern: str = '(?!)'

    def explain(self, error: BaseException, where: str) -> str:
        """Return one line: what happened, where ('in iteration 3'), and the advice."""
        if isinstance(error, MMLaPEError):
            return str(error)
        text = str(error).strip().split('\n')[0][:300].rstrip('.')
        if not self.summary:
            return f'{type(error).__name__} {where}: {text}'
        return f'{self.summary} {where}{f" ({text})" if text else ""}: {self.advice}'


ERROR = Kind('error')
DISK_FULL = Kind(
    'disk-full',
    'the disk is full',
    'free some space, then continue with --resume',
    (DiskSpaceError,),
    r'No space left on device|Disk quota exceeded',
)
KINDS = (
    DISK_FULL,
    Kind(
        'out-of-memory',
        'out of memory',
        'try --cfg-options model.backbone.with_cp=True (same results, slower), --amp bf16, or a smaller '
        'train_dataloader.batch_size with --accumulate',
        (MemoryError, torch.cuda.OutOfMemoryError),
        r"out of memory|out-of-memory|can't allocate memory|CU(DNN|BLAS)_STATUS_ALLOC_FAILED|"
        r'OutOfMemoryError|MemoryError|oom[-_ ]kill|OOM Killed',
    ),
    Kind(
        'missing-checkpoint',
        errors=(MissingCheckpointError,),
        pattern=r'(checkpoint|load_from|\.pth).*(no such file|does not exist)',
    ),
    Kind('not-finite', errors=(NotFiniteError,), pattern=r'not finite|NotFiniteError'),
    Kind(
        'lost-worker',
        'a data loader process was killed',
        'most often memory ran out, in the machine or in /dev/shm; use fewer train_dataloader.num_workers or more '
        'memory, then continue with --resume',
        pattern=r'DataLoader worker \(pid.*?\) (is killed by signal|exited unexpectedly)|unable to open shared memory',
    ),
    Kind(
        'lost-worker',
        'another process of this run was lost',
        'see its log, then continue with --resume',
        (dist.DistBackendError, dist.DistNetworkError, ConnectionError),
        r'closed by peer|reset by peer|Broken pipe|gloo/transport|[Tt]imed out waiting|NCCL (error|comm)|'
        r'Signal 9 \(SIGKILL\)|ChildFailedError',
    ),
    Kind('interrupted', 'interrupted', 'continue with --resume', (KeyboardInterrupt, Interrupted)),
)
SECONDARY = ('lost-worker', 'interrupted')
"""Names of kinds that may only be the echo of another process's failure."""
SLURM_STATES = {
    'OUT_OF_MEMORY': ('out-of-memory', "Slurm's limit of memory was reached: --slurm-args mem=... gives more"),
    'TIMEOUT': ('interrupted', "the job's time limit was reached: --slurm-args time=... gives more"),
    'CANCELLED': ('interrupted', 'the job was cancelled'),
    'PREEMPTED': ('interrupted', 'the job was preempted'),
    'NODE_FAIL': ('lost-worker', 'a node failed'),
}
"""Final states of a Slurm job that explain a failure: the kind's name and the reason."""


def kind_of(error: BaseException) -> Kind:
    """Return the kind of an exception; ``ERROR`` if it is unknown."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return DISK_FULL
    for kind in KINDS:
        if isinstance(error, kind.errors):
            return kind
    kind = kind_in(str(error)) if isinstance(error, RuntimeError) and not isinstance(error, MMLaPEError) else ERROR
    return kind if kind.summary else ERROR


def kind_in(text: str) -> Kind:
    """Return the kind that a message or a log shows; ``ERROR`` if it is unknown."""
    return next((kind for kind in KINDS if re.search(kind.pattern, text)), ERROR)


@contextlib.contextmanager
def record_failure(record: RunRecord) -> Iterator[StopRequest]:
    """Record an exception as the run's failure, then raise it.

    Yields:
        Whether SIGTERM has come.

    Raises:
        TrainingError: Instead of an exception of a known kind, with :meth:`Kind.explain`'s line.
        Interrupted: On SIGTERM.
    """
    peers = all_gather_object((socket.gethostname(), os.getpid()))
    with stopped_by_sigterm() as request:
        try:
            yield request
        except BaseException as caught:
            # MMEngine turns any exception that meets it while it formats a configuration into a SyntaxError
            error = Interrupted() if request.received and not isinstance(caught, MMLaPEError) else caught
            if isinstance(error, SystemExit) and not isinstance(error, Interrupted):
                raise  # another process has recorded the failure
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the launcher's must not stop what follows
            where = f'in iteration {record.iteration}' if record.iteration else 'before the first iteration'
            kind = kind_of(error)
            cause = _cause(record.folder, peers) if get_rank() == 0 and kind.name in SECONDARY else None
            failure = cause or dict(kind=kind.name, reason=kind.explain(error, where))
            _write_failure(record, failure)
            if cause or not (kind is ERROR or isinstance(error, MMLaPEError | KeyboardInterrupt | Interrupted)):
                raise TrainingError(failure['reason']) from caught
            if isinstance(error, Interrupted):
                print(f'mmlape: {failure["reason"]}', file=sys.stderr, flush=True)
                raise error from None
            raise


def _write_failure(record: RunRecord, failure: dict[str, str]) -> None:
    if get_rank() == 0:
        record.fail(failure)
        return
    with contextlib.suppress(OSError):
        write_json(record.folder / NOTES / f'{get_rank()}.json', failure)
        now = read_record(record.folder)
        if failure['kind'] != 'interrupted' and now and now.get('state') == 'running':
            reason = f'process {get_rank()}: {failure["reason"]}'
            RunRecord(record.folder, now).fail(dict(failure, reason=reason))


def _cause(work_dir: Path, peers: list[tuple[str, int]]) -> dict[str, str] | None:
    """Return the failure of another process, from its note or its absence; None if nothing is known."""
    notes = {}
    for path in (work_dir / NOTES).glob('[0-9]*.json'):
        with contextlib.suppress(OSError, ValueError):
            notes[int(path.stem)] = json.loads(path.read_text(encoding='utf-8'))
    for rank, note in sorted(notes.items()):
        if note['kind'] not in SECONDARY:
            return dict(kind=note['kind'], reason=f'process {rank}: {note["reason"]}')
    for rank, (host, pid) in enumerate(peers):
        if rank not in notes and host == socket.gethostname() and not _is_alive(pid):
            reason = f'process {rank} (pid {pid} on {host}) died without a message, most often because memory ran out'
            return dict(kind='lost-worker', reason=f'{reason}; continue with --resume')
    return None


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        status = Path(f'/proc/{pid}/stat').read_text(encoding='utf-8', errors='replace')
    except ProcessLookupError:
        return False
    except OSError:  # of another user; or a system without /proc
        return True
    return status.rpartition(')')[2].split()[0] != 'Z'  # ended, but its parent has not seen it yet

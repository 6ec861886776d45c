"""Types of failure with the advice for each, and how a run's is recorded by whichever process it happens on.

The process that fails first knows the cause; the others only see a broken connection, or are
stopped by the launcher. So a process that fails leaves a note in the work dir, and process 0, which
writes the record, reads the notes. What kills a process or fills the disk is recorded by whoever
started the run: see ``mmlape.lab.runs.diagnosis``.
"""

import contextlib
import errno
import os
import re
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from mmengine.dist import all_gather_object, get_rank

from mmlape.errors import DiskSpaceError, MissingCheckpointError, MMLaPEError, NotFiniteError, TrainingError
from mmlape.files import read_json, write_json
from mmlape.lab.decoding import decode, encode
from mmlape.lab.runs.record import NOTES, Recorder
from mmlape.lab.runs.schema import Failure, read_record
from mmlape.lab.runs.signals import Interrupted, StopRequest, ignore_stop_signals, stopped_by_signals
from mmlape.quiet import say


@dataclass(frozen=True)
class FailureType:
    """What a failure is, and what to do about it."""

    name: str  # the ``kind`` in ``run.json``
    summary: str = ''  # what happened
    advice: str = ''  # what to do about it
    errors: tuple[type[BaseException], ...] = ()  # exceptions of this type
    # found in the message of a RuntimeError or an error of OpenCV of this type, and in the log of a
    # process that died of it
    pattern: str = '(?!)'

    def explain(self, error: BaseException, where: str) -> str:
        """Return one line: what happened, where ('in iteration 3'), and the advice."""
        if isinstance(error, MMLaPEError):
            return str(error)
        text = str(error).strip().split('\n')[0][:300].rstrip('.')
        if not self.summary:
            return f'{type(error).__name__} {where}: {text}'
        return f'{self.summary} {where}{f" ({text})" if text else ""}: {self.advice}'


UNKNOWN = FailureType('error')
DISK_FULL = FailureType(
    'disk-full',
    'the disk is full',
    'free some space, then continue with --resume',
    (DiskSpaceError,),
    r'No space left on device|Disk quota exceeded',
)
TOO_MANY_FILES = FailureType(
    'too-many-files',
    'the limit of open files is reached',
    'raise it by ulimit -n, or use fewer train_dataloader.num_workers, then continue with --resume',
    pattern=r'Too many open files',
)
FAILURE_TYPES = (
    DISK_FULL,
    TOO_MANY_FILES,
    FailureType(
        'out-of-memory',
        'out of memory',
        'try --cfg-options model.backbone.with_cp=True (same results, slower), --amp bf16, or a '
        'smaller train_dataloader.batch_size with --accumulate',
        (MemoryError, torch.cuda.OutOfMemoryError),
        r"out of memory|out-of-memory|can't allocate memory|CU(DNN|BLAS)_STATUS_ALLOC_FAILED|"
        r'OutOfMemoryError|MemoryError|oom[-_ ]kill|OOM Killed|Insufficient memory',
    ),
    FailureType(
        'missing-checkpoint',
        errors=(MissingCheckpointError,),
        pattern=r'(checkpoint|load_from|\.pth).*(no such file|does not exist)',
    ),
    FailureType('not-finite', errors=(NotFiniteError,), pattern=r'not finite|NotFiniteError'),
    FailureType(
        'lost-worker',
        'a data loader process was killed',
        'most often memory ran out, in the machine or in /dev/shm; use fewer '
        'train_dataloader.num_workers or more memory, then continue with --resume',
        pattern=r'DataLoader worker \(pid.*?\) (is killed by signal|exited unexpectedly)|'
        r'unable to open shared memory',
    ),
    FailureType(
        'lost-worker',
        'no batch came from the processes of the data loader',
        'one of them was stopped, its storage does not answer, or /dev/shm is full; give more '
        'shared memory (docker run --shm-size) or train_dataloader.num_workers=0, or a longer '
        'train_dataloader.timeout where batches take that long, then continue with --resume',
        pattern=r'DataLoader timed out after',
    ),
    FailureType(
        'lost-worker',
        'another process of this run was lost',
        'see its log, then continue with --resume',
        (dist.DistBackendError, dist.DistNetworkError, ConnectionError),
        r'closed by peer|reset by peer|Broken pipe|gloo/transport|[Tt]imed out waiting|'
        r'NCCL (error|comm)|Signal 9 \(SIGKILL\)|ChildFailedError',
    ),
    FailureType('interrupted', 'interrupted', 'continue with --resume', (KeyboardInterrupt, Interrupted)),
)
SECONDARY = ('lost-worker', 'interrupted')
"""Names of types that may only be the echo of another process's failure."""


def failure_type_of(error: BaseException) -> FailureType:
    """Return the type of failure that an exception is; ``UNKNOWN`` if it is none of them."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return DISK_FULL
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        return TOO_MANY_FILES
    for failure_type in FAILURE_TYPES:
        if isinstance(error, failure_type.errors):
            return failure_type
    of_a_library = isinstance(error, RuntimeError) or type(error).__module__ == 'cv2'
    if not of_a_library or isinstance(error, MMLaPEError):
        return UNKNOWN
    by_message = failure_type_in(str(error))
    return by_message if by_message.summary else UNKNOWN


def failure_type_in(text: str) -> FailureType:
    """Return the type that a message or a log shows; ``UNKNOWN`` if it is none of them."""
    matching = (found for found in FAILURE_TYPES if re.search(found.pattern, text))
    return next(matching, UNKNOWN)


@contextlib.contextmanager
def record_failure(recorder: Recorder) -> Iterator[StopRequest]:
    """Record an exception as the run's failure, then raise it.

    Yields:
        Whether SIGTERM, SIGHUP or SIGINT has come.

    Raises:
        TrainingError: Instead of an exception of a known type, with the line that explains it.
        Interrupted: On SIGTERM or SIGHUP.
        KeyboardInterrupt: On SIGINT, with that line.
    """
    peers = all_gather_object((socket.gethostname(), os.getpid()))
    with stopped_by_signals() as request:
        try:
            yield request
        except BaseException as caught:
            error = caught
            if request.received and not isinstance(caught, MMLaPEError):
                # MMEngine turns any exception that meets it while it formats a configuration into a
                # SyntaxError
                error = request.error()
            if isinstance(error, SystemExit) and not isinstance(error, Interrupted):
                raise  # another process has recorded the failure
            ignore_stop_signals()  # the launcher's must not stop what follows
            failure_type = failure_type_of(error)
            cause = None
            if get_rank() == 0 and failure_type.name in SECONDARY:
                cause = _cause(recorder.folder, peers)
            reason = failure_type.explain(error, recorder.place)
            failure = cause or Failure(kind=failure_type.name, reason=reason)
            _write_failure(recorder, failure)
            is_known = failure_type is not UNKNOWN
            explains_itself = isinstance(error, MMLaPEError | KeyboardInterrupt | Interrupted)
            if cause or (is_known and not explains_itself):
                raise TrainingError(failure.reason) from caught
            if isinstance(error, Interrupted):
                if get_rank() == 0:
                    say(f'mmlape: {failure.reason}', file=sys.stderr, flush=True)
                raise error from None
            if isinstance(error, KeyboardInterrupt):
                raise KeyboardInterrupt(failure.reason) from None
            raise


def _write_failure(recorder: Recorder, failure: Failure) -> None:
    if get_rank() == 0:
        recorder.fail(failure)
        return
    with contextlib.suppress(OSError):
        write_json(recorder.folder / NOTES / f'{get_rank()}.json', encode(failure))
        now = read_record(recorder.folder)
        if failure.kind != 'interrupted' and now and now.state == 'running':
            reason = f'process {get_rank()}: {failure.reason}'
            Recorder(recorder.folder, now).fail(Failure(kind=failure.kind, reason=reason))


def _cause(work_dir: Path, peers: list[tuple[str, int]]) -> Failure | None:
    """Return the failure of another process, from its note or its absence.

    None if none is known.
    """
    files = (work_dir / NOTES).glob('[0-9]*.json')
    notes = {int(path.stem): note for path in files if (note := decode(Failure, read_json(path), path))}
    for rank, note in sorted(notes.items()):
        if note.kind not in SECONDARY:
            return Failure(kind=note.kind, reason=f'process {rank}: {note.reason}')
    for rank, (host, pid) in enumerate(peers):
        if rank not in notes and host == socket.gethostname() and not _is_alive(pid):
            reason = (
                f'process {rank} (pid {pid} on {host}) died without a message, most often because '
                'memory ran out; continue with --resume'
            )
            return Failure(kind='lost-worker', reason=reason)
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

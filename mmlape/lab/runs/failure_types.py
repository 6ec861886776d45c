"""Types of failure, by which a run's failure is recorded, and the advice for each."""

import errno
import re
from dataclasses import dataclass

import torch
import torch.distributed as dist

from mmlape.errors import DiskSpaceError, MissingCheckpointError, MMLaPEError, NotFiniteError
from mmlape.lab.runs.signals import Interrupted


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

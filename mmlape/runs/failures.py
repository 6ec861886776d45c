"""What ended a run too early: its kind, one line about it with the way out, and ``run.json`` marked on every process.

The process that fails first knows why; the others only see a broken connection, or are stopped by the launcher. So a
process that fails leaves a note in the work dir, and process 0, which writes the record, looks for one.
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
from pathlib import Path

import torch
import torch.distributed as dist
from mmengine.dist import get_rank, get_world_size, is_distributed

from mmlape.errors import MissingCheckpointError, MMLaPEError, NotFiniteError, TrainingError
from mmlape.files import write_json
from mmlape.runs.record import NOTES, RunRecord, read_record

SECONDARY = ('lost-worker', 'interrupted')
"""Kinds that may only be the echo of another process's failure."""

_MEMORY = r"out of memory|can't allocate memory|CUDNN_STATUS_ALLOC_FAILED|CUBLAS_STATUS_ALLOC_FAILED"
_LOADER = r'DataLoader worker \(pid.*?\) (is killed by signal|exited unexpectedly)|unable to open shared memory'
_CONNECTION = r'closed by peer|reset by peer|Broken pipe|gloo/transport|[Tt]imed out waiting|NCCL (error|comm)'
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Interrupted(SystemExit):
    """The process was asked to stop by SIGTERM; it ends with the shell's status for that."""

    def __init__(self) -> None:
        super().__init__(128 + signal.SIGTERM)


def kind_of(error: BaseException) -> str:
    """What kind of failure an exception is; 'error' for one that is none of those with a known way out."""
    text = str(error)
    if isinstance(error, KeyboardInterrupt | Interrupted):
        return 'interrupted'
    if isinstance(error, NotFiniteError):
        return 'not-finite'
    if isinstance(error, MissingCheckpointError):
        return 'missing-checkpoint'
    if isinstance(error, MemoryError | torch.cuda.OutOfMemoryError) or re.search(_MEMORY, text):
        return 'out-of-memory'
    if isinstance(error, OSError) and error.errno in _FULL:
        return 'disk-full'
    if isinstance(error, dist.DistBackendError | dist.DistNetworkError | ConnectionError):
        return 'lost-worker'
    if isinstance(error, RuntimeError) and re.search(f'{_LOADER}|{_CONNECTION}', text):
        return 'lost-worker'
    return 'error'


def explain(kind: str, error: BaseException, where: str) -> str:
    """One line: what happened, ``where`` ('in iteration 3'), and the ways out that this kind has."""
    text = str(error).strip().split('\n')[0][:300].rstrip('.')
    if isinstance(error, MMLaPEError):
        return str(error)
    if kind == 'out-of-memory':
        return (
            f'out of memory {where} ({text}). Ways out: --cfg-options model.backbone.with_cp=True (the same numbers, '
            'slower), --amp bf16, or a smaller train_dataloader.batch_size with --accumulate'
        )
    if kind == 'disk-full':
        return f'the disk is full {where} ({text}): make room, then go on with --resume'
    if kind == 'lost-worker' and re.search(_LOADER, text):
        return (
            f'a process that loads data was killed {where} ({text}): most often memory ran out, in the machine or in '
            '/dev/shm. Ways out: fewer train_dataloader.num_workers, more memory; then --resume'
        )
    if kind == 'lost-worker':
        return f'another process of this run was lost {where} ({text}): see its log, then go on with --resume'
    if kind == 'interrupted':
        return f'interrupted {where}: go on with --resume'
    return f'{type(error).__name__} {where}: {text}'


@contextlib.contextmanager
def marked(record: RunRecord) -> Iterator[None]:
    """Marks ``run.json`` as failed, on whichever process it happens, before the exception goes on.

    Raises:
        TrainingError: In the place of an exception whose kind is known, with what :func:`explain` says.
        Interrupted: On SIGTERM.
    """
    peers = _peers()
    with _stopping_at_sigterm() as asked:
        try:
            yield
        except BaseException as caught:
            # MMEngine turns any exception that meets it while it formats a configuration into a SyntaxError
            error = Interrupted() if asked and not isinstance(caught, MMLaPEError) else caught
            if isinstance(error, SystemExit) and not isinstance(error, Interrupted):
                raise  # another process has said and marked why
            _ignore_sigterm()
            kind, where = kind_of(error), f'in iteration {record.at}' if record.at else 'before the first iteration'
            reason = explain(kind, error, where)
            found = _cause(record.folder, peers) if get_rank() == 0 and kind in SECONDARY else None
            kind, reason = found or (kind, reason)
            _mark(record, kind, reason)
            if found or not (kind == 'error' or isinstance(error, MMLaPEError | KeyboardInterrupt | Interrupted)):
                raise TrainingError(reason) from caught
            if isinstance(error, Interrupted):
                print(f'mmlape: {reason}', file=sys.stderr, flush=True)
                raise error from None
            raise


def _mark(record: RunRecord, kind: str, reason: str) -> None:
    failure = dict(kind=kind, reason=reason)
    if get_rank() == 0:
        record.fail(failure)
        return
    with contextlib.suppress(OSError):
        write_json(record.folder / NOTES / f'{get_rank()}.json', failure)
        now = read_record(record.folder)
        if kind != 'interrupted' and now and now.get('state') == 'running':
            failure['reason'] = f'process {get_rank()}: {reason}'
            RunRecord(record.folder, now).fail(failure)


def _cause(work_dir: Path, peers: list[tuple[str, int]]) -> tuple[str, str] | None:
    """What another process failed of, from its note or its absence; None if nothing is known."""
    notes = {}
    for path in (work_dir / NOTES).glob('[0-9]*.json'):
        with contextlib.suppress(OSError, ValueError):
            notes[int(path.stem)] = json.loads(path.read_text(encoding='utf-8'))
    for rank, note in sorted(notes.items()):
        if note['kind'] not in SECONDARY:
            return note['kind'], f'process {rank}: {note["reason"]}'
    for rank, (host, pid) in enumerate(peers):
        if rank not in notes and host == socket.gethostname() and not _alive(pid):
            return 'lost-worker', (
                f'process {rank} (pid {pid} on {host}) ended without a word: killed, most often because memory ran '
                'out; go on with --resume'
            )
    return None


def _peers() -> list[tuple[str, int]]:
    """Host and process id of every process of this run."""
    found = [(socket.gethostname(), os.getpid())]
    if is_distributed():
        gathered = [None] * get_world_size()
        dist.all_gather_object(gathered, found[0])
        found = gathered
    return found


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@contextlib.contextmanager
def _stopping_at_sigterm() -> Iterator[list[int]]:
    """Turns SIGTERM into an exception in this process; in those that it forks it keeps its usual meaning.

    Yields:
        A list that is empty until the signal came.
    """
    asked: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    owner = os.getpid()

    def stop(number: int, _) -> None:
        if os.getpid() != owner:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        signal.signal(number, signal.SIG_IGN)
        asked.append(number)
        raise Interrupted

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield asked
    finally:
        if not (is_distributed() and signal.getsignal(signal.SIGTERM) is signal.SIG_IGN):
            signal.signal(signal.SIGTERM, before)


def _ignore_sigterm() -> None:
    """A process that is failing ends by itself: the launcher's SIGTERM must not take its last words."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

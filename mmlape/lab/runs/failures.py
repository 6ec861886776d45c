"""A run's failure, recorded in ``run.json`` by whichever process it happens on.

The process that fails first knows the cause; the others only see a broken connection, or are
stopped by the launcher. So a process that fails leaves a note in the work dir, and process 0, which
writes the record, reads the notes. What kills a process or fills the disk is recorded by whoever
started the run: see ``mmlape.lab.runs.diagnosis``.
"""

import contextlib
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

from mmengine.dist import all_gather_object, get_rank

from mmlape.errors import MMLaPEError, TrainingError
from mmlape.lab.runs.failure_types import SECONDARY, UNKNOWN, failure_type_of
from mmlape.lab.runs.record import NOTES, Recorder
from mmlape.lab.runs.schema import Failure, read_failure, read_record, write_failure
from mmlape.lab.runs.signals import Interrupted, StopRequest, ignore_stop_signals, stopped_by_signals
from mmlape.quiet import say


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
        write_failure(recorder.folder / NOTES / f'{get_rank()}.json', failure)
        now = read_record(recorder.folder)
        if failure.kind != 'interrupted' and now and now.state == 'running':
            reason = f'process {get_rank()}: {failure.reason}'
            Recorder(recorder.folder, now).fail(Failure(kind=failure.kind, reason=reason))


def _cause(work_dir: Path, peers: list[tuple[str, int]]) -> Failure | None:
    """Return the failure of another process, from its note or its absence.

    None if none is known.
    """
    files = (work_dir / NOTES).glob('[0-9]*.json')
    notes = {int(path.stem): note for path in files if (note := read_failure(path))}
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

"""A run's failure, recorded in ``run.json`` by whichever process it happens on.

The process that fails first knows the cause; the others only see a broken connection, or are
stopped by the launcher. So a process that fails leaves a note in the work dir, and process 0, which
writes the record, reads the notes. What kills a process or fills the disk is recorded by whoever
started the run: see ``mmlape.runs.diagnosis``.
"""

import contextlib
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

from mmengine.dist import all_gather_object, get_rank

from mmlape.errors import MMLaPEError, TrainingError
from mmlape.files import read_json, write_json
from mmlape.quiet import say
from mmlape.runs.failure_types import SECONDARY, UNKNOWN, failure_type_of
from mmlape.runs.record import NOTES, RunRecord, read_record
from mmlape.runs.signals import Interrupted, StopRequest, ignore_stop_signals, stopped_by_signals


@contextlib.contextmanager
def record_failure(record: RunRecord) -> Iterator[StopRequest]:
    """Record an exception as the run's failure, then raise it.

    Yields:
        Whether SIGTERM or SIGINT has come.

    Raises:
        TrainingError: Instead of an exception of a known type, with the line that explains it.
        Interrupted: On SIGTERM.
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
                cause = _cause(record.folder, peers)
            reason = failure_type.explain(error, record.place)
            failure = cause or dict(kind=failure_type.name, reason=reason)
            _write_failure(record, failure)
            is_known = failure_type is not UNKNOWN
            explains_itself = isinstance(error, MMLaPEError | KeyboardInterrupt | Interrupted)
            if cause or (is_known and not explains_itself):
                raise TrainingError(failure['reason']) from caught
            if isinstance(error, Interrupted):
                say(f'mmlape: {failure["reason"]}', file=sys.stderr, flush=True)
                raise error from None
            if isinstance(error, KeyboardInterrupt):
                raise KeyboardInterrupt(failure['reason']) from None
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
    """Return the failure of another process, from its note or its absence.

    None if none is known.
    """
    files = (work_dir / NOTES).glob('[0-9]*.json')
    notes = {int(path.stem): note for path in files if (note := read_json(path))}
    for rank, note in sorted(notes.items()):
        if note['kind'] not in SECONDARY:
            return dict(kind=note['kind'], reason=f'process {rank}: {note["reason"]}')
    for rank, (host, pid) in enumerate(peers):
        if rank not in notes and host == socket.gethostname() and not _is_alive(pid):
            reason = (
                f'process {rank} (pid {pid} on {host}) died without a message, most often because '
                'memory ran out; continue with --resume'
            )
            return dict(kind='lost-worker', reason=reason)
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


TAIL_LINES = 15
SCANNED_LINES = 200
_FIRST_FAILURE = re.compile(
    r'^mmlape: process (\d+) failed first, with exit status (-\d+)$', re.MULTILINE
)
_STOPS = ('SIGKILL', 'SIGTERM', 'SIGINT', 'SIGHUP')


def last_part(log: str | Path) -> list[str]:
    """Return the lines that the last attempt printed."""
    try:
        lines = Path(log).read_text(encoding='utf-8', errors='replace').splitlines()
    except OSError:
        return []
    begin = max((number for number, line in enumerate(lines) if line.startswith('$ ')), default=-1)
    return lines[begin + 1 :]


def log_tail(log: str | Path) -> str:
    """Return the last lines of the last attempt, indented."""
    return '\n'.join(f'    {line}' for line in last_part(log)[-TAIL_LINES:])


def oom_kills() -> int:
    """Return how many processes the kernel of this machine has killed for lack of memory."""
    try:
        match = re.search(r'^oom_kill (\d+)$', Path('/proc/vmstat').read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(match[1]) if match else 0


def diagnose(status: int | None, lines: list[str], out_of_memory: bool = False) -> dict[str, str]:
    """Return ``kind`` and ``reason`` of a failure.

    Args:
        status: The exit status, below 0 or above 128 for a signal; None if unknown.
        lines: The lines that the run printed.
        out_of_memory: Whether the kernel has killed processes for lack of memory meanwhile.
    """
    text = '\n'.join(lines[-SCANNED_LINES:])
    first = _FIRST_FAILURE.findall(text)
    number = -int(first[-1][1]) if first else _signal_of(status)
    if number:
        name = signal.Signals(number).name if number in set(signal.Signals) else f'signal {number}'
        if name == 'SIGKILL' and out_of_memory:
            return dict(
                kind='out-of-memory', reason='killed by the kernel: this machine ran out of memory'
            )
        if first:
            return dict(kind='lost-worker', reason=f'process {first[-1][0]} was killed by {name}')
        return dict(kind='interrupted' if name in _STOPS else 'error', reason=f'killed by {name}')
    errors = [line.split('mmlape: error:')[1].strip() for line in lines if 'mmlape: error:' in line]
    kind = kind_in(errors[-1] if errors else text).name
    if kind == 'lost-worker' and out_of_memory:
        return dict(
            kind='out-of-memory',
            reason='the kernel killed a process: this machine ran out of memory',
        )
    if errors:
        return dict(kind=kind, reason=errors[-1])
    cause = next(
        (
            line
            for line in reversed(lines)
            if re.match(r'\S*(Error|Exception|Killed|error):?\b', line)
        ),
        None,
    )
    ending = 'ended without a message' if status is None else f'exit status {status}'
    line = cause or (lines[-1] if lines else None)
    return dict(kind=kind, reason=f'{ending}: {line.strip()}' if line else ending)


def _signal_of(status: int | None) -> int:
    """Return the number of the signal that an exit status stands for, or 0."""
    if status is None or not (status < 0 or 128 < status < 160):
        return 0
    return -status if status < 0 else status - 128


def record_diagnosis(run: Run, failure: dict, config: str, before: dict) -> Run:
    """Record the diagnosed failure of a run that ended without recording one; return the run as it is now.

    Args:
        run: As read after its end.
        failure: As :func:`diagnose` returns it.
        config: For a run that never wrote a record.
        before: Its record before this attempt; if it is the same still, a failure in it is an earlier attempt's.
    """
    if run.finished or run.state == 'running' or (run.state == 'failed' and run.record != before):
        return run
    record = read_record(run.folder) or dict(
        config=config, seed=run.seed, iter=0, last=None, best=None
    )
    record.update(
        state='failed', reason=failure['reason'], failure=failure, updated=time.time(), eta=None
    )
    with contextlib.suppress(OSError):  # a full disk, or no folder at all: the log is left
        write_json(Path(run.folder) / RECORD, record)
    return read_run(run.folder, run.seed)

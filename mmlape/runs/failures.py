"""Kinds of failure with their advice, and a run's failure recorded in ``run.json`` by whichever process it happens on.

The process that fails first knows the cause; the others only see a broken connection, or are stopped by the launcher.
So a process that fails leaves a note in the work dir, and process 0, which writes the record, reads the notes. A
process that is killed cannot record its failure, nor one whose disk is full: whoever started the run diagnoses it from
exit status and log, and corrects the record, which then still says 'running'.
"""

import contextlib
import errno
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from mmengine.dist import all_gather_object, get_rank, is_distributed

from mmlape.errors import DiskSpaceError, MissingCheckpointError, MMLaPEError, NotFiniteError, TrainingError
from mmlape.files import read_json, write_json
from mmlape.quiet import say
from mmlape.runs.record import NOTES, RECORD, RunRecord, read_record
from mmlape.runs.run import Run, read_run


class Interrupted(SystemExit):
    """SIGTERM stopped the process; it exits with the shell's status for that."""

    def __init__(self) -> None:
        super().__init__(128 + signal.SIGTERM)

    def __str__(self) -> str:
        return 'SIGTERM'


STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
ECHO = 1.0
"""Seconds in which a second SIGINT is the same Ctrl-C: a terminal and a launcher both send it."""


class StopRequest:
    """Whether SIGTERM or SIGINT has come; if ``waits``, the run stops by itself, else :meth:`error` is raised at once.

    A second Ctrl-C is never left to wait.
    """

    def __init__(self) -> None:
        self.received = self.waits = False
        self.number: int = signal.SIGTERM
        self.pressed: float | None = None  # when the first Ctrl-C came

    def __call__(self, number: int, _) -> None:
        """Handle a signal."""
        now, first = time.monotonic(), number == signal.SIGINT and self.pressed is None
        again = number == signal.SIGINT and not first and now - self.pressed > ECHO
        self.pressed = now if first else self.pressed
        if not self.received:
            self.received, self.number = True, number
        if again or not self.waits:
            _ignore_stop_signals()
            raise self.error()
        if first and get_rank() == 0:  # not by print, which this may have interrupted
            os.write(2, b'mmlape: saving after this step, then stopping; Ctrl-C again stops at once\n')

    def error(self) -> BaseException:
        """Return what ends the run: KeyboardInterrupt after Ctrl-C, else Interrupted."""
        return KeyboardInterrupt() if self.number == signal.SIGINT else Interrupted()


def _ignore_stop_signals() -> None:
    """Let nothing stop what still has to be written."""
    if threading.current_thread() is threading.main_thread():
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN)


@contextlib.contextmanager
def stopped_by_signals() -> Iterator[StopRequest]:
    """Handle SIGTERM and SIGINT in this process; in processes that it forks they keep their usual effect."""
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    owner = os.getpid()

    def stop(number: int, frame) -> None:
        if os.getpid() == owner:
            request(number, frame)
            return
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    before = {number: signal.signal(number, stop) for number in STOP_SIGNALS}
    try:
        yield request
    finally:
        for number, handler in before.items():
            if not (is_distributed() and signal.getsignal(number) is signal.SIG_IGN):
                signal.signal(number, handler)


def init_worker(inner: Callable[[int], None] | None, number: int) -> None:
    """Start a data loader's worker, which SIGTERM ends only if its parent sends it; ``inner`` is called first.

    Slurm, a launcher and a terminal's Ctrl-C reach the workers, too, without which the parent could not reach its next
    step.
    """
    if inner is not None:
        inner(number)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, 'sigwaitinfo'):
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        threading.Thread(target=_end_with_parents_signal, args=(os.getppid(),), daemon=True).start()


def _end_with_parents_signal(parent: int) -> None:
    while signal.sigwaitinfo({signal.SIGTERM}).si_pid != parent:
        pass
    os._exit(0)


@dataclass(frozen=True)
class Kind:
    """A kind of failure."""

    name: str  # as in ``run.json``
    summary: str = ''  # what happened
    advice: str = ''  # what to do about it
    errors: tuple[type[BaseException], ...] = ()  # exceptions of this kind
    # found in the message of a RuntimeError of this kind, and in the log of a process that died of it
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
        Whether SIGTERM or SIGINT has come.

    Raises:
        TrainingError: Instead of an exception of a known kind, with :meth:`Kind.explain`'s line.
        Interrupted: On SIGTERM.
        KeyboardInterrupt: On SIGINT, with that line.
    """
    peers = all_gather_object((socket.gethostname(), os.getpid()))
    with stopped_by_signals() as request:
        try:
            yield request
        except BaseException as caught:
            # MMEngine turns any exception that meets it while it formats a configuration into a SyntaxError
            error = request.error() if request.received and not isinstance(caught, MMLaPEError) else caught
            if isinstance(error, SystemExit) and not isinstance(error, Interrupted):
                raise  # another process has recorded the failure
            _ignore_stop_signals()  # the launcher's must not stop what follows
            kind = kind_of(error)
            cause = _cause(record.folder, peers) if get_rank() == 0 and kind.name in SECONDARY else None
            failure = cause or dict(kind=kind.name, reason=kind.explain(error, record.place))
            _write_failure(record, failure)
            if cause or not (kind is ERROR or isinstance(error, MMLaPEError | KeyboardInterrupt | Interrupted)):
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
    """Return the failure of another process, from its note or its absence; None if nothing is known."""
    files = (work_dir / NOTES).glob('[0-9]*.json')
    notes = {int(path.stem): note for path in files if (note := read_json(path))}
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


TAIL_LINES = 15
SCANNED_LINES = 200
_FIRST_FAILURE = re.compile(r'^mmlape: process (\d+) failed first, with exit status (-\d+)$', re.MULTILINE)
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
            return dict(kind='out-of-memory', reason='killed by the kernel: this machine ran out of memory')
        if first:
            return dict(kind='lost-worker', reason=f'process {first[-1][0]} was killed by {name}')
        return dict(kind='interrupted' if name in _STOPS else 'error', reason=f'killed by {name}')
    errors = [line.split('mmlape: error:')[1].strip() for line in lines if 'mmlape: error:' in line]
    kind = kind_in(errors[-1] if errors else text).name
    if kind == 'lost-worker' and out_of_memory:
        return dict(kind='out-of-memory', reason='the kernel killed a process: this machine ran out of memory')
    if errors:
        return dict(kind=kind, reason=errors[-1])
    cause = next((line for line in reversed(lines) if re.match(r'\S*(Error|Exception|Killed|error):?\b', line)), None)
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
    record = read_record(run.folder) or dict(config=config, seed=run.seed, iter=0, last=None, best=None)
    record.update(state='failed', reason=failure['reason'], failure=failure, updated=time.time(), eta=None)
    with contextlib.suppress(OSError):  # a full disk, or no folder at all: the log is left
        write_json(Path(run.folder) / RECORD, record)
    return read_run(run.folder, run.seed)

"""Kinds of failure, and how a run's is recorded: by the process that fails, else by whoever started the run.

The process that fails first knows the cause; the others only see a broken connection, or are
stopped by the launcher. So the first one writes its reason into the record, and process 0 leaves it
there. A process that is killed cannot record its failure, nor one whose disk is full: whoever
started the run diagnoses it, and corrects the record, which then still says 'running'. What MMEngine and torch raise
while they build a part of a configuration is one line that names its key.
"""

import contextlib
import difflib
import inspect
import re
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from mmengine.config import Config
from mmengine.dist import get_rank
from mmengine.registry import Registry

from mmlape.console.quiet import say
from mmlape.errors import ConfigError, MMLaPEError, TrainingError, failed_import, shown
from mmlape.lab.runs.record import Recorder, end_by
from mmlape.lab.runs.run import Run, read_run
from mmlape.lab.runs.schema import ENDED, Failure, RunRecord, read_record, write_record
from mmlape.lab.runs.signals import Interrupted, StopRequest, ignore_stop_signals, stopped_by_signals

PATTERNS = {
    'disk-full': r'No space left on device|Disk quota exceeded|File too large|DiskSpaceError',
    'too-many-files': r'Too many open files',
    'out-of-memory': r"out of memory|out-of-memory|can't allocate memory|CU(DNN|BLAS)_STATUS_ALLOC_FAILED|"
    r'OutOfMemoryError|MemoryError|oom[-_ ]kill|OOM Killed|Insufficient memory',
    'missing-checkpoint': r'MissingCheckpointError|(checkpoint|load_from|\.pth).*(no such file|does not exist)',
    'not-finite': r'not finite|NotFiniteError',
    'lost-worker': r'DataLoader worker \(pid.*?\) (is killed by signal|exited unexpectedly)|'
    r'DataLoader timed out after|unable to open shared memory|Dist(Backend|Network)Error|Connection\w*Error|'
    r'closed by peer|reset by peer|Broken pipe|'
    r'gloo/transport|[Tt]imed out waiting|NCCL (error|comm)|Signal 9 \(SIGKILL\)|ChildFailedError',
}
"""What shows each kind of failure, the ``kind`` in ``run.json``, in an exception or in the log of a run; others are
'error', and signals 'interrupted'."""
ADVICE = {
    'disk-full': 'free some space, then continue with --resume',
    'too-many-files': 'raise the limit by ulimit -n, or use fewer train_dataloader.num_workers, then continue with '
    '--resume',
    'out-of-memory': 'try --cfg-options model.backbone.with_cp=True (same results, slower), --amp bf16, or a smaller '
    'train_dataloader.batch_size with --accumulate',
    'lost-worker': 'a process of this run was lost, and its log may say why; most often memory ran out, in the '
    'machine or in /dev/shm: use fewer train_dataloader.num_workers or give more (docker run --shm-size); where a '
    'batch takes longer, raise train_dataloader.timeout; then continue with --resume',
}
"""What to do where the machine is the cause, not the config."""
SECONDARY = ('lost-worker', 'interrupted')
"""Kinds that may only be the echo of another process's failure."""
TAIL_LINES = 15
SCANNED_LINES = 200
SLURM_STATES = {
    'OUT_OF_MEMORY': ('out-of-memory', "Slurm's limit of memory was reached: --slurm-args mem=... gives more"),
    'TIMEOUT': ('interrupted', "the job's time limit was reached: --slurm-args time=... gives more"),
    'CANCELLED': ('interrupted', 'the job was cancelled'),
    'PREEMPTED': ('interrupted', 'the job was preempted'),
    'NODE_FAIL': ('lost-worker', 'a node failed'),
}
"""Final states of a Slurm job that explain a failure: its kind, and the reason."""
_FIRST_FAILURE = re.compile(r'failed \(exitcode: (-\d+)\) local_rank: (\d+)')  # as torchrun logs it
_ERROR_LINE = re.compile(r'\S*(Error|Exception|Killed|error):?\b')
_STOPS = ('SIGKILL', 'SIGTERM', 'SIGINT', 'SIGHUP', 'SIGUSR1')


def failure_kind(error: BaseException) -> str:
    """Return the kind of failure that an exception is."""
    if isinstance(error, KeyboardInterrupt | Interrupted):
        return 'interrupted'
    name = type(error).__name__
    is_network = isinstance(error, OSError) and error.errno is None and not isinstance(error, ConnectionError)
    if is_network:  # of requests and urllib, whose messages are about other machines
        return 'error'
    has_its_message = isinstance(error, RuntimeError | OSError) or type(error).__module__ == 'cv2'
    return kind_in(f'{name}: {error}' if has_its_message and not isinstance(error, MMLaPEError) else name)


def kind_in(text: str) -> str:
    """Return the kind of failure that a message or a log shows."""
    return next((kind for kind, pattern in PATTERNS.items() if re.search(pattern, text)), 'error')


def explain(error: BaseException, where: str) -> str:
    """Return one line: what happened, where ('in iteration 3'), and what to do."""
    if isinstance(error, MMLaPEError):
        return str(error)
    kind, text = failure_kind(error), str(error).strip().split('\n')[0][:300].rstrip('.')
    if kind == 'interrupted':
        return f'interrupted {where}{f" ({text})" if text else ""}: continue with --resume'
    advice = f'; {ADVICE[kind]}' if kind in ADVICE else ''
    return f'{type(error).__name__} {where}: {text}{advice}'


@contextlib.contextmanager
def record_failure(recorder: Recorder) -> Iterator[StopRequest]:
    """Record an exception as the run's failure, then raise it.

    Yields:
        Whether a signal has come that stops a run.

    Raises:
        TrainingError: Instead of an exception of a known kind, with the line that explains it.
        Interrupted: On SIGTERM, SIGHUP or SIGUSR1.
        KeyboardInterrupt: On SIGINT, with that line.
    """
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
            failure = Failure(kind=failure_kind(error), reason=explain(error, recorder.place))
            is_echo = get_rank() == 0 and failure.kind in SECONDARY
            cause = recorder.failure_of_another() if is_echo else None
            with contextlib.suppress(OSError):  # a full disk
                _write_failure(recorder, cause or failure)
            if cause:
                raise TrainingError(cause.reason) from caught
            if failure.kind in ADVICE and not isinstance(error, MMLaPEError):
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
    now = read_record(recorder.folder)
    if failure.kind != 'interrupted' and now and now.state == 'running':
        reason = f'process {get_rank()}: {failure.reason}'
        Recorder(recorder.folder, now).fail(Failure(kind=failure.kind, reason=reason))


def last_part(log: str | Path) -> list[str]:
    """Return the lines that the last attempt printed."""
    try:
        lines = Path(log).read_text(encoding='utf-8', errors='replace').splitlines()
    except OSError:
        return []
    commands = (number for number, line in enumerate(lines) if line.startswith('$ '))
    begin = max(commands, default=-1)
    return lines[begin + 1 :]


def log_tail(log: str | Path) -> str:
    """Return the last lines of the last attempt, indented."""
    return '\n'.join(f'    {line}' for line in last_part(log)[-TAIL_LINES:])


def oom_kills() -> int:
    """Return how many processes the kernel of this machine has killed for lack of memory."""
    try:
        counters = Path('/proc/vmstat').read_text()
    except OSError:
        return 0
    match = re.search(r'^oom_kill (\d+)$', counters, re.MULTILINE)
    return int(match[1]) if match else 0


def diagnose(status: int | None, lines: list[str], out_of_memory: bool = False) -> Failure:
    """Return what a run has died of.

    Args:
        status: The exit status, below 0 or above 128 for a signal; None if unknown.
        lines: The lines that the run printed.
        out_of_memory: Whether the kernel has killed processes for lack of memory meanwhile.
    """
    text = '\n'.join(lines[-SCANNED_LINES:])
    errors = [line.split('mmlape: error:')[1].strip() for line in lines if 'mmlape: error:' in line]
    first = _FIRST_FAILURE.findall(text)
    name = _signal_name(int(first[-1][0]) if first else status)
    if not name:
        kind, reason = kind_in(errors[-1] if errors else text), errors[-1] if errors else _ending(status, lines)
    elif first:
        kind, reason = 'lost-worker', f'process {first[-1][1]} was killed by {name}'
    else:
        kind, reason = 'interrupted' if name in _STOPS else 'error', f'killed by {name}'
    if out_of_memory and (kind == 'lost-worker' or name == 'SIGKILL'):
        kind, reason = 'out-of-memory', 'the kernel killed a process: this machine ran out of memory'
    return Failure(kind=kind, reason=reason)


def _ending(status: int | None, lines: list[str]) -> str:
    """Return the exit status with the last line that names an error, else with the last line."""
    ending = 'ended without a message' if status is None else f'exit status {status}'
    cause = next((line for line in reversed(lines) if _ERROR_LINE.match(line)), None)
    line = cause or (lines[-1] if lines else None)
    return f'{ending}: {line.strip()}' if line else ending


def _signal_name(status: int | None) -> str:
    """Return the name of the signal that an exit status stands for, or ''."""
    if status is None or not (status < 0 or 128 < status < 160):
        return ''
    number = -status if status < 0 else status - 128
    return signal.Signals(number).name if number in set(signal.Signals) else f'signal {number}'


def record_diagnosis(run: Run, failure: Failure, config: str, before: RunRecord) -> Run:
    """Record the diagnosed failure of a run that ended without recording one.

    Args:
        run: As read after its end.
        failure: As :func:`diagnose` returns it.
        config: For a run that never wrote a record.
        before: Its record before this attempt. If that is the record still, a failure in it is an
            earlier attempt's.

    Returns:
        The run as it is now.
    """
    has_recorded_failure = run.state in ENDED and run.record != before
    if run.finished or run.state == 'running' or has_recorded_failure:
        return run
    record = read_record(run.folder) or RunRecord(config=config, seed=run.seed, iter=0)
    end_by(record, failure)
    record.updated, record.eta = time.time(), None
    with contextlib.suppress(OSError):  # a full disk, or no folder at all: the log is left
        write_record(run.folder, record)
    return read_run(run.folder, run.seed)


@contextlib.contextmanager
def building(cfg: Config, key: str) -> Iterator[None]:
    """Raise ConfigError with a key of ``cfg`` for whatever its value makes the block raise.

    What has a cause outside of the value passes: memory, a full disk, a lost process, a package
    that does not import.
    """
    try:
        yield
    except MMLaPEError:
        raise
    except Exception as error:
        if failed_import(error) or failure_kind(error) in ADVICE:
            raise
        raise ConfigError(
            f'{cfg.filename}: {key}{_innermost(error)} cannot be built: {shown(error)}{_meant(error)}'
        ) from error


def _innermost(error: Exception) -> str:
    """Return ' (TYPE)' of the innermost part whose class a registry was building.

    '' if there was none.
    """
    frames = _building_frames(error)
    types = [(frame.f_locals.get('cfg') or {}).get('type') for frame in frames]
    return f' ({getattr(types[-1], "__name__", types[-1])})' if types else ''


def _building_frames(error: Exception) -> list[FrameType]:
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return [frame for frame in frames if frame.f_code.co_name == 'build_from_cfg']


def _meant(error: Exception) -> str:
    """Return which argument or registered name a misspelt one resembles, as '; did you mean NAME?'."""
    frames = _building_frames(error)
    if not frames:
        return ''
    values = frames[-1].f_locals
    if match := re.search(r"unexpected keyword argument '(\w+)'", str(error)):
        name, names = match[1], _arguments_of(values.get('obj_cls'))
    elif match := re.search(r'([\w.]+) is not in the \S+ registry', str(error)):
        name, names = match[1], _registered_names(values['registry'], match[1].rpartition('.')[0])
    else:
        return ''
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    return f'; did you mean {" or ".join(close)}?' if close else ''


def _registered_names(registry: Registry, scope: str) -> set[str]:
    """Return the names in a registry and its parent, or in the one of a scope, with that before them."""
    root = registry._get_root_registry()
    chosen = [root.children[scope]] if scope in root.children else [registry, root]
    for one in chosen:
        getattr(one, 'import_all', one.import_from_location)()
    return {f'{scope}.{name}' if scope else name for one in chosen for name in one.module_dict}


def _arguments_of(built: Any) -> set[str]:
    """Return the arguments of a function, or of a class and its bases, to which it may pass others on."""
    parts = [part.__init__ for part in inspect.getmro(built)] if inspect.isclass(built) else [built]  # type: ignore[misc]
    return {name for part in parts for name in inspect.signature(part).parameters} - {'self', 'args', 'kwargs'}

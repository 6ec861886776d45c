"""What a run died of that could not record it, from its exit status and its log.

A process that is killed cannot record its failure, nor one whose disk is full. Whoever started the
run diagnoses it, and corrects the record, which then still says 'running'.
"""

import contextlib
import re
import signal
import time
from pathlib import Path

from mmlape.lab.runs.failures import failure_type_in
from mmlape.lab.runs.record import end_by
from mmlape.lab.runs.run import Run, read_run
from mmlape.lab.runs.schema import ENDED, Failure, RunRecord, read_record, write_record

TAIL_LINES = 15
SCANNED_LINES = 200
SLURM_STATES = {
    'OUT_OF_MEMORY': ('out-of-memory', "Slurm's limit of memory was reached: --slurm-args mem=... gives more"),
    'TIMEOUT': ('interrupted', "the job's time limit was reached: --slurm-args time=... gives more"),
    'CANCELLED': ('interrupted', 'the job was cancelled'),
    'PREEMPTED': ('interrupted', 'the job was preempted'),
    'NODE_FAIL': ('lost-worker', 'a node failed'),
}
"""Final states of a Slurm job that explain a failure: the name of its type, and the reason."""
_FIRST_FAILURE = re.compile(r'^mmlape: process (\d+) failed first, with exit status (-\d+)$', re.MULTILINE)
_ERROR_LINE = re.compile(r'\S*(Error|Exception|Killed|error):?\b')
_STOPS = ('SIGKILL', 'SIGTERM', 'SIGINT', 'SIGHUP')


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
    first_failures = _FIRST_FAILURE.findall(text)
    number = -int(first_failures[-1][1]) if first_failures else _signal_of(status)
    if number:
        rank = first_failures[-1][0] if first_failures else None
        return _of_signal(number, rank, out_of_memory)
    errors = [line.split('mmlape: error:')[1].strip() for line in lines if 'mmlape: error:' in line]
    failure_kind = failure_type_in(errors[-1] if errors else text).name
    if failure_kind == 'lost-worker' and out_of_memory:
        reason = 'the kernel killed a process: this machine ran out of memory'
        return Failure(kind='out-of-memory', reason=reason)
    if errors:
        return Failure(kind=failure_kind, reason=errors[-1])
    return Failure(kind=failure_kind, reason=_ending(status, lines))


def _of_signal(number: int, rank: str | None, out_of_memory: bool) -> Failure:
    """Return the failure of a run that a signal ended, or of its process ``rank``."""
    is_known = number in set(signal.Signals)
    name = signal.Signals(number).name if is_known else f'signal {number}'
    if name == 'SIGKILL' and out_of_memory:
        reason = 'killed by the kernel: this machine ran out of memory'
        return Failure(kind='out-of-memory', reason=reason)
    if rank is not None:
        return Failure(kind='lost-worker', reason=f'process {rank} was killed by {name}')
    return Failure(kind='interrupted' if name in _STOPS else 'error', reason=f'killed by {name}')


def _ending(status: int | None, lines: list[str]) -> str:
    """Return the exit status with the last line that names an error, else with the last line."""
    ending = 'ended without a message' if status is None else f'exit status {status}'
    cause = next((line for line in reversed(lines) if _ERROR_LINE.match(line)), None)
    line = cause or (lines[-1] if lines else None)
    return f'{ending}: {line.strip()}' if line else ending


def _signal_of(status: int | None) -> int:
    """Return the number of the signal that an exit status stands for, or 0."""
    if status is None or not (status < 0 or 128 < status < 160):
        return 0
    return -status if status < 0 else status - 128


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

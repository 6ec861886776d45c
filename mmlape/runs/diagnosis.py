"""The failure of a run that could not record it, diagnosed from its exit status and the end of its log.

A process that is killed cannot record its failure, nor one whose disk is full; the record then still says 'running'.
Whoever started the run corrects that here.
"""

import contextlib
import re
import signal
import time
from pathlib import Path

from mmlape.files import write_json
from mmlape.runs.failures import kind_in
from mmlape.runs.record import RECORD, read_record
from mmlape.runs.run import Run, read_run

TAIL_LINES = 15
SCANNED_LINES = 200
_FIRST_FAILURE = re.compile(r'^mmlape: process (\d+) failed first, with exit status (-\d+)$', re.MULTILINE)
_STOPS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


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
    if number == signal.SIGKILL and out_of_memory:
        return dict(kind='out-of-memory', reason='killed by the kernel: this machine ran out of memory')
    if number:
        name = signal.Signals(number).name if number in set(signal.Signals) else f'signal {number}'
        if first:
            return dict(kind='lost-worker', reason=f'process {first[-1][0]} was killed by {name}')
        return dict(kind='interrupted' if number in _STOPS else 'error', reason=f'killed by {name}')
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


def record_diagnosis(run: Run, failure: dict, config: str, since: float) -> Run:
    """Record the diagnosed failure of a run that ended without recording one.

    Args:
        run: As read after its end.
        failure: As :func:`diagnose` returns it.
        config: For a run that never wrote a record.
        since: Start of the attempt; a failure recorded before it is an earlier attempt's.

    Returns:
        The run as it is now; unchanged if it has recorded its own failure.
    """
    if run.finished or run.state == 'running' or (run.state == 'failed' and _modified(run) >= since):
        return run
    record = read_record(run.folder) or dict(config=config, seed=run.seed, iter=0, last=None, best=None)
    record.update(state='failed', reason=failure['reason'], failure=failure, updated=time.time(), eta=None)
    with contextlib.suppress(OSError):  # a full disk, or no folder at all: the log is left
        write_json(Path(run.folder) / RECORD, record)
    return read_run(run.folder, run.seed)


def _modified(run: Run) -> float:
    try:
        return (Path(run.folder) / RECORD).stat().st_mtime
    except OSError:
        return 0.0

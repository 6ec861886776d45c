"""What ended a training that did not say so itself: read from its exit status and from the end of its log.

A training that can still speak writes its own reason. One that was killed cannot, nor one whose disk is full; its
record then still says that it runs. Whoever started it corrects that here.
"""

import contextlib
import re
import signal
import time
from pathlib import Path

from mmlape.files import write_json
from mmlape.runs.record import RECORD, read_record
from mmlape.runs.run import Run, read_run

TAIL_LINES = 15
_KINDS = (
    ('disk-full', r'No space left on device|Disk quota exceeded'),
    ('out-of-memory', r'OutOfMemoryError|out of memory|out-of-memory|oom[-_ ]kill|OOM Killed|MemoryError'),
    ('missing-checkpoint', r'(checkpoint|load_from|\.pth).*(no such file|does not exist)'),
    ('not-finite', r'not finite|NotFiniteError'),
    ('lost-worker', r'is killed by signal|Signal 9 \(SIGKILL\)|closed by peer|exited unexpectedly|ChildFailedError'),
)


def last_part(log: str | Path) -> list[str]:
    """The lines that the last attempt printed."""
    try:
        lines = Path(log).read_text(encoding='utf-8', errors='replace').splitlines()
    except OSError:
        return []
    begin = max((number for number, line in enumerate(lines) if line.startswith('$ ')), default=-1)
    return lines[begin + 1 :]


def log_tail(log: str | Path) -> str:
    """The last lines of the last attempt, indented."""
    return '\n'.join(f'    {line}' for line in last_part(log)[-TAIL_LINES:])


def oom_kills() -> int:
    """How many processes the kernel of this machine has killed for their memory."""
    try:
        found = re.search(r'^oom_kill (\d+)$', Path('/proc/vmstat').read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) if found else 0


def diagnose(status: int | None, lines: list[str], starved: bool = False) -> dict:
    """Kind and reason of a failure.

    Args:
        status: The exit status, below 0 or above 128 for a signal; None if nobody knows it.
        lines: What the training printed.
        starved: Whether the machine ran out of memory meanwhile.
    """
    number = -status if status and status < 0 else status - 128 if status and 128 < status < 160 else 0
    text = '\n'.join(lines[-200:])
    said = [line for line in lines if 'mmlape: error:' in line]
    first = re.findall(r'^mmlape: process (\d+) failed first, with exit status (-\d+)$', text, re.MULTILINE)
    if first:
        number = -int(first[-1][1])
    if number == signal.SIGKILL and starved:
        return dict(kind='out-of-memory', reason='the kernel killed it: the memory of this machine ran out')
    if number:
        name = signal.Signals(number).name if number in set(signal.Signals) else f'signal {number}'
        if first:
            return dict(kind='lost-worker', reason=f'process {first[-1][0]} was killed by {name}')
        interrupted = number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        return dict(kind='interrupted' if interrupted else 'error', reason=f'killed by {name}')
    kind = next((kind for kind, pattern in _KINDS if re.search(pattern, said[-1] if said else text)), 'error')
    if kind == 'lost-worker' and starved:
        return dict(kind='out-of-memory', reason='the kernel killed a process: the memory of this machine ran out')
    if said:
        return dict(kind=kind, reason=said[-1].split('mmlape: error:')[1].strip())
    cause = next((line for line in reversed(lines) if re.match(r'\S*(Error|Exception|Killed|error):?\b', line)), None)
    ended = 'ended without a word' if status is None else f'exit status {status}'
    line = cause or (lines[-1] if lines else None)
    return dict(kind=kind, reason=f'{ended}: {line.strip()}' if line else ended)


def settle(run: Run, failure: dict, config: str, since: float) -> Run:
    """Writes into the record of a run that ended without a word what it ended of.

    Args:
        run: As it was found after its end.
        failure: As from `diagnose`.
        config: For a run that never wrote a record.
        since: When the attempt began; what an earlier one left behind does not count.

    Returns:
        The run as it is now. One that explained itself stays as it is.
    """
    if run.finished or run.state == 'running' or (run.state == 'failed' and _written(run) >= since):
        return run
    record = read_record(run.folder) or dict(
        config=config, seed=run.seed, iter=0, evaluations=[], last=None, best=None
    )
    record.update(state='failed', reason=failure['reason'], failure=failure, updated=time.time(), eta=None)
    with contextlib.suppress(OSError):  # a full disk, or no folder at all: then the log alone says it
        write_json(Path(run.folder) / RECORD, record)
    return read_run(run.folder, run.seed)


def _written(run: Run) -> float:
    try:
        return (Path(run.folder) / RECORD).stat().st_mtime
    except OSError:
        return 0.0

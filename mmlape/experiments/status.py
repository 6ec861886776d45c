"""How the runs below a work dir are now: read from the disk alone, while others train there or when they are gone."""

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from mmlape.evaluation.names import RANKING, show
from mmlape.runs.locks import lock_holder
from mmlape.runs.record import running_in
from mmlape.runs.run import Run, read_arms

SILENT = 900  # seconds without news of a running run, after which that is worth a word
STYLES = {'finished': 'green', 'running': 'cyan', 'starting': 'cyan', 'queued': 'yellow'}


@dataclass(frozen=True)
class Row:
    """One run.

    Args:
        state: 'missing', 'queued' (a Slurm job that waits), 'starting', 'running', 'broken' (killed; the next
            multi-seed resumes it), 'failed' or 'finished'.
        eta: Seconds, while it runs.
        metric: Name, value and iteration of the last evaluation's main metric.
        host: Who trains it, or did.
        reason: Why it is not running, or how long it has said nothing.
    """

    arm: str
    seed: int
    state: str
    iter: int | None = None
    max_iters: int | None = None
    eta: int | None = None
    metric: tuple[str, float | None, int] | None = None
    host: str | None = None
    reason: str | None = None


def rows(work_dir: str | Path) -> list[Row]:
    """Every run of every arm below a work dir, or of the arm whose folder it is.

    Raises:
        DataError: There are none.
    """
    return [row(arm, run) for arm, runs in read_arms(work_dir).items() for run in runs]


def row(arm: str, run: Run, now: float | None = None) -> Row:
    """What there is to say of one run."""
    record, now = run.record, time.time() if now is None else now
    silence = now - record.get('updated', now)
    reason, eta = run.reason or (record.get('failure') or {}).get('reason'), None
    state, holder, job = run.state, running_in(run.folder), slurm_job(run.folder)
    starting = None if holder else lock_holder(run.folder.parent / 'logs' / f'.{run.folder.name}.lock')
    if state == 'running':
        reason = f'no news for {clock(silence)}' if silence > SILENT else None
        if record.get('eta') is not None:
            eta = max(0, round(record['eta'] - silence))
    elif holder or starting:
        state, reason = 'starting', None
    elif job and run.state != 'finished':
        state, reason = 'queued', f'job {job["job"]}: {job["state"]}'
    elif state == 'broken':
        reason = 'killed; the next multi-seed resumes it'
    host = (holder or starting or {}).get('host') or record.get('host')
    return Row(arm, run.seed, state, record.get('iter'), record.get('max_iters'), eta, _metric(run), host, reason)


def slurm_job(folder: str | Path) -> dict | None:
    """The Slurm job of a run that had not ended when somebody last looked; None if there is none."""
    folder = Path(folder)
    try:
        job = json.loads((folder.parent / 'slurm' / f'{folder.name}.json').read_text(encoding='utf-8'))
    except (OSError, ValueError):
        return None
    return None if job.get('ended') else job


def _metric(run: Run) -> tuple[str, float | None, int] | None:
    if not run.last:
        return None
    names = [(run.best or {}).get('key'), *RANKING, *run.last['metrics']]
    name = next((name for name in names if name in run.last['metrics']), None)
    return None if name is None else (name, run.last['metrics'][name], run.last['step'])


def table(found: Sequence[Row]) -> Table:
    """The runs as a table, and how many there are of each state."""
    counts = {state: sum(one.state == state for one in found) for state in dict.fromkeys(one.state for one in found)}
    result = Table(
        'arm', 'seed', 'state', 'iteration', 'left', 'last metric', 'host', 'reason',
        title=', '.join(f'{count} {state}' for state, count in counts.items()),
    )  # fmt: skip
    for number, one in enumerate(found):
        if number and found[number - 1].arm != one.arm:
            result.add_section()
        far = '' if one.iter is None else f'{one.iter} of {one.max_iters or "?"}'
        metric = f'{one.metric[0]} {show(*one.metric[:2])} at {one.metric[2]}' if one.metric else ''
        style = STYLES.get(one.state, 'red' if one.state in ('failed', 'broken') else '')
        result.add_row(
            one.arm, str(one.seed), f'[{style}]{one.state}[/]' if style else one.state, far,
            '' if one.eta is None else clock(one.eta), metric, one.host or '', escape(one.reason or ''),
        )  # fmt: skip
    return result


def as_json(found: Sequence[Row]) -> str:
    """The runs as JSON: a list of objects with `Row`'s fields; ``metric`` has name, value and step."""
    listed = [
        dict(asdict(one), metric=one.metric and dict(zip(('name', 'value', 'step'), one.metric, strict=True)))
        for one in found
    ]
    return json.dumps(listed, indent=2, ensure_ascii=False)


def watch(work_dir: str | Path, seconds: float) -> None:
    """Shows the table again and again: in place in a terminal, one below the other elsewhere; until Ctrl-C."""
    from rich.live import Live

    if not sys.stdout.isatty():
        while True:
            print(time.strftime('%Y-%m-%d %H:%M:%S'))
            console().print(table(rows(work_dir)))
            time.sleep(seconds)
    with Live(table(rows(work_dir)), console=console(), auto_refresh=False, screen=False) as live:
        while True:
            time.sleep(seconds)
            live.update(table(rows(work_dir)), refresh=True)


def console() -> Console:
    """As wide as the terminal; wide enough for tables in a file or a pipe."""
    return Console(width=None if sys.stdout.isatty() else 180)


def clock(seconds: float) -> str:
    """'1:02:03'."""
    return str(timedelta(seconds=round(seconds)))

"""The state of the runs below a work dir, read from the disk alone, whoever trains them."""

import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.progress_bar import ProgressBar

from mmlape.console.tables import print_table, text_table
from mmlape.console.terminal import clock, console
from mmlape.lab.evaluation.metric_names import ranked, show
from mmlape.lab.runs.run import Run, holder, job_file, read_arms
from mmlape.lab.runs.schema import Failure, read_job

SILENT = 900
"""Seconds without news of a running run, after which the table says so."""
STYLES = {
    'finished': 'green',
    'running': 'cyan',
    'starting': 'cyan',
    'queued': 'yellow',
    'failed': 'red',
    'interrupted': 'yellow',
    'broken': 'red',
}


@dataclass(frozen=True)
class Row:
    """One run."""

    arm: str
    seed: int | None
    # 'missing', 'queued' (a Slurm job that waits), 'starting', 'running', 'broken' (killed; can be
    # resumed), 'failed', 'interrupted' or 'finished'
    state: str
    iter: int | None = None
    max_iters: int | None = None
    # of all processes, without evaluations; of a run that has ended, its last part's
    images_per_second: float | None = None
    eta: int | None = None  # seconds left, while it runs
    # name, value and iteration of the last evaluation's main metric
    metric: tuple[str, float | None, int] | None = None
    host: str | None = None  # the machine that trains it, or trained it
    sharing: int | None = None  # how many runs may share its GPU, or the cores
    reason: str | None = None  # why it is not running, or how long it has been silent


def rows(work_dir: str | Path) -> list[Row]:
    """Return the runs of every arm below a work dir, or of the arm whose folder it is.

    DataError if there are none.
    """
    return [_row(arm, run) for arm, runs in read_arms(work_dir).items() for run in runs]


def _row(arm: str, run: Run) -> Row:
    record, now = run.record, time.time()
    silence = max(0.0, now - (record.updated or now))  # of a machine whose clock is ahead, too
    reason, eta = run.reason or (record.failure or Failure()).reason, None
    state, process, job = run.state, holder(run.folder), read_job(job_file(run.folder))
    if state == 'running':
        reason = f'no news for {clock(silence)}' if silence > SILENT else None
        if record.eta is not None:
            eta = max(0, round(record.eta - silence))
    elif process and state != 'finished':
        state, reason = 'starting', None
    elif job and not job.ended and state != 'finished':
        state, reason = 'queued', f'job {job.job}: {job.state}'
    elif state == 'broken':
        reason = 'killed; `train --resume` or the next multi-seed resumes it'
    host = (process or {}).get('host') or record.host
    key = run.best.key if run.best else None
    names = ranked(run.last.metrics, key) if run.last else []
    images, seconds = (record.world_size or 0) * (record.images_per_process or 0), run.cost.seconds_per_iter
    return Row(
        arm=arm,
        seed=run.seed,
        state=state,
        iter=record.iter,
        max_iters=record.max_iters,
        images_per_second=images / seconds if seconds and images else None,
        eta=eta,
        metric=(names[0], run.last.metrics[names[0]], run.last.step) if names else None,
        host=host,
        sharing=record.sharing,
        reason=reason,
    )


def print_rows(runs: Sequence[Row]) -> None:
    """Print the table of runs, with how many there are of each state."""
    counts = Counter(run.state for run in runs)
    rows = [
        (
            run.arm,
            run.seed,
            run.state,
            ProgressBar(run.max_iters or 1, run.iter or 0, width=12),
            '' if run.iter is None else f'{run.iter} of {run.max_iters or "?"}',
            '' if run.images_per_second is None else f'{run.images_per_second:.1f}',
            '' if run.eta is None else clock(run.eta),
            f'{run.metric[0]} {show(*run.metric[:2])} at {run.metric[2]}' if run.metric else '',
            f'{run.host or ""} (shared by {run.sharing})' if run.sharing else run.host or '',
            run.reason or '',
        )
        for run in runs
    ]
    columns = ('arm', 'seed', 'state', 'progress', 'iteration', 'images/s', 'left', 'last metric', 'host', 'reason')
    title = ', '.join(f'{count} {state}' for state, count in counts.items())
    print_table(text_table(columns, rows, len(columns)), title, sections=1, styles=STYLES)


def as_json(runs: Sequence[Row]) -> str:
    """Return the runs as JSON: a list of objects with `Row`'s fields.

    ``metric`` has name, value and step.
    """
    listed = [
        dict(asdict(run), metric=run.metric and dict(zip(('name', 'value', 'step'), run.metric, strict=True)))
        for run in runs
    ]
    return json.dumps(listed, indent=2, ensure_ascii=False)


def watch(work_dir: str | Path, seconds: float) -> None:
    """Refresh the table until Ctrl-C: in place in a terminal, one below the other elsewhere."""
    while True:
        found = rows(work_dir)
        console().clear()  # does nothing but in a terminal
        print(time.strftime('%Y-%m-%d %H:%M:%S'))
        print_rows(found)
        time.sleep(seconds)

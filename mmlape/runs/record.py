"""A work dir: the record of its run (``run.json``), its checkpoints and its lock."""

import json
import os
import re
import shutil
import time
from pathlib import Path

from mmlape.errors import TrainingError
from mmlape.files import write_json
from mmlape.runs.locks import lock_holder, read_holder, take_lock

RECORD = 'run.json'
LOCK = '.lock'
NOTES = '.failures'
"""Folder in which processes other than the first record their failures."""
RESERVE = '.reserve'
"""A file that is deleted to make room for the record of a run that fails because the disk is full."""


def read_record(work_dir: str | Path) -> dict | None:
    """Return the record of the run in ``work_dir``; None if there is none that can be read."""
    try:
        record = json.loads((Path(work_dir) / RECORD).read_text(encoding='utf-8'))
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) else None


def lock_run(work_dir: str | Path) -> int:
    """Lock a work dir until the returned descriptor is closed or this process ends.

    Raises:
        TrainingError: Another process holds the lock (the message names it), or files there cannot be locked.
    """
    path = Path(work_dir) / LOCK
    try:
        descriptor = take_lock(path)
    except OSError as error:
        raise TrainingError(
            f'cannot lock {path} ({error.strerror}): give another --work-dir, on a file system with flock'
        ) from error
    if descriptor is None:
        other = read_holder(path)
        where = f' by process {other["pid"]} on {other["host"]}, since {other["since"]}' if other else ''
        raise TrainingError(f'work dir {work_dir} is in use{where}: wait for it, stop it, or give another --work-dir')
    return descriptor


def running_in(work_dir: str | Path) -> dict | None:
    """Return who trains in a work dir now, as :func:`mmlape.runs.locks.lock_holder`; None if nobody does."""
    return lock_holder(Path(work_dir) / LOCK)


def checkpoints(work_dir: str | Path) -> list[Path]:
    """Return the resumable checkpoints (``iter_N.pth``, ``epoch_N.pth``) of a work dir, newest first."""
    found = []
    for path in Path(work_dir).glob('*.pth'):
        match = re.fullmatch(r'(?:iter|epoch)_(\d+)\.pth', path.name)
        if match:
            found.append((int(match[1]), path))
    return [path for _, path in sorted(found, reverse=True)]


def check_writable(folder: Path, option: str = '--work-dir') -> None:
    """Make a folder; raise TrainingError, which names the option that sets it, if nothing can be written there."""
    probe = folder / f'.writable.{os.getpid()}'
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as error:
        reason = error.strerror or error
        raise TrainingError(f'cannot write into {folder} ({reason}): give another {option}') from error


class RunRecord:
    """The content of ``run.json``; only rank 0's copy is written.

    Args:
        work_dir: The folder of the file.
        fields: Known at the start: configuration, seed, batch.
        write: Whether this process writes.

    Attributes:
        iteration: The current iteration, counted from 1; 0 before the first.
    """

    def __init__(self, work_dir: str | Path, fields: dict, write: bool = True) -> None:
        self.folder = Path(work_dir)
        self.iteration = 0
        self.writes = write
        self.fields = dict(fields, state='running', reason=None, failure=None)
        self.fields.setdefault('evaluations', [])

    def update(self, **fields) -> None:
        """Change fields and write the file, unless another process has recorded a failure."""
        self.fields.update(fields, updated=time.time())
        if self.writes and not (self.fields['state'] == 'running' and (self.folder / NOTES).exists()):
            write_json(self.folder / RECORD, self.fields)

    def begin(self) -> None:
        """Write the file for the first time, without an earlier part's failure."""
        if self.writes:
            shutil.rmtree(self.folder / NOTES, ignore_errors=True)
            (self.folder / RESERVE).write_bytes(os.urandom(1 << 16))
        self.update()

    def finish(self) -> None:
        """Record that the run is complete."""
        self._end(state='finished', finished=time.strftime('%Y-%m-%dT%H:%M:%S'))

    def fail(self, failure: dict[str, str]) -> None:
        """Record the ``kind`` and ``reason`` of a failure."""
        self._end(state='failed', reason=failure['reason'], failure=failure)

    def _end(self, **fields) -> None:
        if self.writes:
            (self.folder / RESERVE).unlink(missing_ok=True)
        self.update(**fields)

    def add_evaluation(self, step: int, metrics: dict[str, float], key: str, greater: bool = True, **position) -> None:
        """Record an evaluation as the last one, and the best one by ``metrics[key]``."""
        entry = dict(step=step, **position, metrics=metrics)
        evaluations = [old for old in self.fields['evaluations'] if old['step'] < step] + [entry]
        scored = [old for old in evaluations if old['metrics'].get(key) is not None]
        pick = max if greater else min
        best = pick(scored, key=lambda old: old['metrics'][key]) if scored else None
        self.update(evaluations=evaluations, last=entry, best=best and dict(best, key=key))

    def rewind(self, previous: dict | None, step: int) -> None:
        """Take over an earlier part's evaluations up to the step that the run is resumed from."""
        kept = [old for old in (previous or {}).get('evaluations', []) if old['step'] <= step]
        self.fields['evaluations'] = kept
        self.fields['last'] = kept[-1] if kept else None
        best = (previous or {}).get('best')
        if best and best['step'] > step:
            key = best['key']
            scored = [old for old in kept if old['metrics'].get(key) is not None]
            best = dict(max(scored, key=lambda old: old['metrics'][key]), key=key) if scored else None
        self.fields['best'] = best

    def has_evaluated(self, step: int) -> bool:
        """Return whether the weights of this step have been evaluated."""
        return any(old['step'] == step for old in self.fields['evaluations'])

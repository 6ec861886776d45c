"""A work dir: the run that it belongs to (``run.json``), its checkpoints, and who may write into it."""

import json
import os
import re
import shutil
import time
import zipfile
from pathlib import Path

from mmlape.errors import CheckpointError, TrainingError
from mmlape.files import write_json
from mmlape.runs.locks import lock_holder, read_holder, take_lock

RECORD = 'run.json'
LOCK = '.lock'
NOTES = '.failures'
"""Where processes other than the first say what they failed of."""
RESERVE = '.reserve'
"""A file that is there to be deleted, so that a run which fails of a full disk has room to say so."""


def read_record(work_dir: str | Path) -> dict | None:
    """The record of the run in ``work_dir``; None where there is none, or none that can be read."""
    try:
        record = json.loads((Path(work_dir) / RECORD).read_text(encoding='utf-8'))
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) else None


def lock_run(work_dir: str | Path) -> int:
    """Keeps other runs out of a work dir until the returned descriptor is closed or this process ends.

    Raises:
        TrainingError: If another process trains there; the message says where. Or if files there cannot be locked.
    """
    path = Path(work_dir) / LOCK
    try:
        descriptor = take_lock(path)
    except OSError as error:
        raise TrainingError(
            f'cannot lock {path} ({error.strerror}): give another --work-dir, on a file system that has flock'
        ) from error
    if descriptor is None:
        other = read_holder(path)
        where = f' by process {other["pid"]} on {other["host"]}, since {other["since"]}' if other else ''
        raise TrainingError(
            f'work dir {work_dir} is in use{where}: wait for it, stop it, or give another with --work-dir'
        )
    return descriptor


def running_in(work_dir: str | Path) -> dict | None:
    """Who trains in a work dir now: ``host``, ``pid``, ``slurm_job`` (or None) and ``since``; None if nobody does."""
    return lock_holder(Path(work_dir) / LOCK)


def checkpoints(work_dir: str | Path) -> list[Path]:
    """The resumable checkpoints (``iter_N.pth``, ``epoch_N.pth``) of a work dir, the newest first."""
    found = []
    for path in Path(work_dir).glob('*.pth'):
        match = re.fullmatch(r'(?:iter|epoch)_(\d+)\.pth', path.name)
        if match:
            found.append((int(match[1]), path))
    return [path for _, path in sorted(found, reverse=True)]


def is_whole(path: str | Path) -> bool:
    """Whether a file is a complete archive as torch writes them, every member's checksum included."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.testzip() is None
    except (OSError, zipfile.BadZipFile):
        return False


def find_resumable(work_dir: str | Path, say=print) -> Path | None:
    """The newest whole checkpoint of a work dir.

    Args:
        work_dir: Where to look.
        say: Called with a sentence for every checkpoint that is passed over.
    """
    for path in checkpoints(work_dir):
        if is_whole(path):
            return path
        say(f'{path} is damaged (killed while it was written?): passing over it')
    return None


def claim(work_dir: str | Path, resume: bool | str, say=print) -> Path | None:
    """Makes sure that a new run, or the rest of an old one, may write into ``work_dir``.

    Args:
        work_dir: Made if it does not exist.
        resume: False for a new run, True to go on from the newest whole checkpoint here, or a checkpoint's path.
        say: Called with what was decided, where that is not obvious.

    Returns:
        The checkpoint to go on from; None to begin.

    Raises:
        TrainingError: If the directory cannot be written to, or belongs to another run.
        CheckpointError: If the named checkpoint does not exist or is damaged.
    """
    work_dir = Path(work_dir)
    check_writable(work_dir)
    if isinstance(resume, str):
        if not Path(resume).is_file():
            raise CheckpointError(f'--resume {resume}: no such file')
        if not is_whole(resume):
            raise CheckpointError(
                f'--resume {resume}: the file is damaged, or is no checkpoint written by torch >= 1.6'
            )
        if Path(resume).absolute().parent != work_dir.absolute():
            _check_unused(work_dir)
        return Path(resume)
    if resume:
        found = find_resumable(work_dir, say)
        say(f'resuming from {found}' if found else f'nothing to resume in {work_dir}: starting from the beginning')
        return found
    _check_unused(work_dir)
    return None


def check_writable(work_dir: Path) -> None:
    """Makes the directory; raises TrainingError if it cannot be written to."""
    probe = work_dir / f'.writable.{os.getpid()}'
    try:
        work_dir.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as error:
        reason = error.strerror or error
        raise TrainingError(
            f'cannot write into work dir {work_dir} ({reason}): give another with --work-dir'
        ) from error


def _check_unused(work_dir: Path) -> None:
    record = read_record(work_dir)
    weights = sorted(path.name for path in work_dir.glob('*.pth'))
    unused = not weights and (record is None or record.get('state') == 'failed')
    if unused:
        return
    what = f'{len(weights)} checkpoint{"s" * (len(weights) != 1)}'
    if record:
        what += f', a run of {record.get("config")} that is {record.get("state")} at iteration {record.get("iter")}'
    raise TrainingError(
        f'work dir {work_dir} is already used ({what}): go on with --resume, or give another with --work-dir'
    )


class RunRecord:
    """What ``run.json`` says about a run; only rank 0's copy is written.

    Args:
        work_dir: Where the file lies.
        fields: What is known at the start: configuration, seed, batch.
        write: Whether this process writes.
    """

    def __init__(self, work_dir: str | Path, fields: dict, write: bool = True) -> None:
        self.folder = Path(work_dir)
        self.at = 0  # the iteration that is going on, counted from 1
        self.writes = write
        self.fields = dict(fields, state='running', reason=None, failure=None)
        self.fields.setdefault('evaluations', [])

    def update(self, **fields) -> None:
        """Changes fields and writes the file; a run that another process has marked as failed is not running."""
        self.fields.update(fields, updated=time.time())
        if self.writes and not (self.fields['state'] == 'running' and (self.folder / NOTES).exists()):
            write_json(self.folder / RECORD, self.fields)

    def begin(self) -> None:
        """Writes the file for the first time, with nothing left of an earlier part's failure."""
        if self.writes:
            shutil.rmtree(self.folder / NOTES, ignore_errors=True)
            (self.folder / RESERVE).write_bytes(os.urandom(1 << 16))
        self.update()

    def finish(self) -> None:
        """Notes that the run is complete."""
        self._end(state='finished', finished=time.strftime('%Y-%m-%dT%H:%M:%S'))

    def fail(self, failure: dict[str, str]) -> None:
        """Notes that the run ended too early: ``kind`` and ``reason``."""
        self._end(state='failed', reason=failure['reason'], failure=failure)

    def _end(self, **fields) -> None:
        if self.writes:
            (self.folder / RESERVE).unlink(missing_ok=True)
        self.update(**fields)

    def evaluated(self, step: int, metrics: dict[str, float], key: str, greater: bool = True, **position) -> None:
        """Notes an evaluation: the last one, and the best one by ``metrics[key]``."""
        entry = dict(step=step, **position, metrics=metrics)
        evaluations = [old for old in self.fields['evaluations'] if old['step'] < step] + [entry]
        scored = [old for old in evaluations if old['metrics'].get(key) is not None]
        pick = max if greater else min
        best = pick(scored, key=lambda old: old['metrics'][key]) if scored else None
        self.update(evaluations=evaluations, last=entry, best=best and dict(best, key=key))

    def rewind(self, previous: dict | None, step: int) -> None:
        """Takes over what an earlier part of this run found out up to the step that it is resumed from."""
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
        """Whether the weights of this step have been evaluated."""
        return any(old['step'] == step for old in self.fields['evaluations'])

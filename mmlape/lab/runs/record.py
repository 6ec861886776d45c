"""A work dir: the record of its run (``run.json``, ``evaluations.jsonl``), its checkpoints and its lock."""

import json
import os
import re
import resource
import shutil
import socket
import time
from pathlib import Path

from mmlape.errors import DataError, TrainingError
from mmlape.files import atomic_path, parse_json, read_json, write_json
from mmlape.lab.runs.fields import EVALUATION, check, check_run
from mmlape.lab.runs.locks import lock_holder, take_lock

RECORD = 'run.json'
HISTORY = 'evaluations.jsonl'
"""All evaluations, a line each. A line counts once ``run.json`` has that evaluation, or a later
one, as its last."""
LOCK = '.lock'
ENDED = ('failed', 'interrupted')
"""States of a run that has ended before its length."""
NOTES = '.failures'
"""Folder in which processes other than the first record their failures."""
RESERVE = '.reserve'
"""A file that is deleted to make room for the record of a run that fails because the disk is full."""


def read_record(work_dir: str | Path) -> dict | None:
    """Return the record of the run in ``work_dir``; None if there is none that can be read.

    Raises:
        DataError: A field of it has another type than this package writes.
    """
    path = Path(work_dir) / RECORD
    record = read_json(path)
    if record is not None:
        check_run(record, path)
    return record


def read_evaluations(work_dir: str | Path) -> list[dict]:
    """Return all evaluations of the run in ``work_dir``, oldest first, each with its step and metrics.

    Raises:
        DataError: As `read_record`, or the same of a line of the history.
    """
    record, path = read_record(work_dir) or {}, Path(work_dir) / HISTORY
    try:
        lines = path.read_text(encoding='utf-8').splitlines()
    except OSError:
        return record.get('evaluations') or []  # where older versions have them
    except UnicodeDecodeError as error:
        raise DataError(f'{path} is no text in UTF-8: restore the file') from error
    end = record['last']['step'] if record.get('last') else 0
    evaluations: list[dict] = []
    for number, line in enumerate(lines, 1):
        try:
            entry = parse_json(line)
        except ValueError:  # a kill while it was written
            break
        check(entry, EVALUATION, path, f'line {number}')
        if entry is not None:
            _append(evaluations, entry)
    return [entry for entry in evaluations if entry['step'] <= end]


def _append(evaluations: list[dict], entry: dict) -> None:
    """Append an evaluation; those of its step or later ones are of an earlier part that was rewound."""
    while evaluations and evaluations[-1]['step'] >= entry['step']:
        evaluations.pop()
    evaluations.append(entry)


def lock_run(work_dir: str | Path) -> int:
    """Lock a work dir until the returned descriptor is closed or this process ends.

    Raises:
        TrainingError: Another process holds the lock (the message names it), or files there cannot
            be locked.
    """
    path = Path(work_dir) / LOCK
    try:
        descriptor = take_lock(path)
    except OSError as error:
        raise TrainingError(
            f'cannot lock {path} ({error.strerror}): give another --work-dir, on a file system '
            'with flock'
        ) from error
    if descriptor is None:
        other = read_json(path)
        where = (
            f' by process {other["pid"]} on {other["host"]}, since {other["since"]}'
            if other
            else ''
        )
        raise TrainingError(
            f'work dir {work_dir} is in use{where}: wait for it, stop it, or give another '
            '--work-dir'
        )
    return descriptor


def running_in(work_dir: str | Path) -> dict | None:
    """Return who trains in a work dir now, as :func:`mmlape.lab.runs.locks.lock_holder`.

    None if nobody does.
    """
    return lock_holder(Path(work_dir) / LOCK)


def checkpoints(work_dir: str | Path) -> list[Path]:
    """Return the resumable checkpoints of a work dir, newest first.

    They are ``iter_N.pth`` and ``epoch_N.pth``, and ``epoch_N_iter_M.pth`` of a run that was
    stopped after N epochs.
    """
    numbered = []
    for path in Path(work_dir).glob('*.pth'):
        match = re.fullmatch(r'(?:iter|epoch)_(\d+)(?:_iter_(\d+))?\.pth', path.name)
        if match:
            numbered.append((int(match[1]), int(match[2] or 0), path))
    return [path for *_, path in sorted(numbered, reverse=True)]


def check_writable(folder: Path, option: str = '--work-dir') -> None:
    """Make a folder; raise TrainingError, which names the option that sets it, if nothing can be written there."""
    probe = folder / f'.writable.{os.getpid()}'
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as error:
        reason = error.strerror or error
        raise TrainingError(
            f'cannot write into {folder} ({reason}): give another {option}'
        ) from error


class RunRecord:
    """The content of ``run.json`` and ``evaluations.jsonl``; only rank 0's copy is written.

    Attributes:
        iteration: The current iteration, counted from 1; 0 before the first.
        evaluations: All evaluations, oldest first.
    """

    def __init__(self, work_dir: str | Path, fields: dict, write: bool = True) -> None:
        self.folder = Path(work_dir)
        self.iteration = 0
        self.writes = write
        self.evaluations: list[dict] = []
        self.fields = dict(fields, state='running', reason=None, failure=None)

    @property
    def place(self) -> str:
        """Where the run is, in words."""
        if not self.iteration:
            return 'before the first iteration'
        over = self.iteration > (self.fields.get('max_iters') or self.iteration)
        return 'after the last iteration' if over else f'in iteration {self.iteration}'

    def update(self, **fields) -> None:
        """Change fields and write the file, unless another process has recorded a failure."""
        self.fields.update(fields, updated=time.time())
        if self.writes and not (
            self.fields['state'] == 'running' and (self.folder / NOTES).exists()
        ):
            write_json(self.folder / RECORD, self.fields)

    def begin(self) -> None:
        """Write the files for the first time, without an earlier part's failure."""
        if self.writes:
            shutil.rmtree(self.folder / NOTES, ignore_errors=True)
            (self.folder / RESERVE).write_bytes(os.urandom(1 << 16))
            with atomic_path(self.folder / HISTORY) as partial:
                partial.write_text(''.join(map(_line, self.evaluations)), encoding='utf-8')
        self.update()

    def finish(self) -> None:
        """Record that the run is complete."""
        self._end(state='finished', finished=time.strftime('%Y-%m-%dT%H:%M:%S'))

    def fail(self, failure: dict[str, str]) -> None:
        """Record the ``kind`` and ``reason`` of a failure, and the iterations that were complete by then."""
        done = max(self.fields.get('iter') or 0, self.iteration - 1)
        self._end(**ended(failure), iter=done)

    def _end(self, **fields) -> None:
        if self.writes:
            (self.folder / RESERVE).unlink(missing_ok=True)
        self.update(**fields)

    def add_evaluation(
        self,
        step: int,
        metrics: dict[str, float],
        key: str,
        greater: bool = True,
        **position,
    ) -> None:
        """Record an evaluation as the last one, and the best one by ``metrics[key]``."""
        entry = dict(step=step, **position, metrics=metrics)
        _append(self.evaluations, entry)
        if self.writes:
            with open(self.folder / HISTORY, 'a', encoding='utf-8') as file:
                file.write(_line(entry))
        self.update(last=entry, best=_best(self.evaluations, key, greater))

    def rewind(self, previous: dict | None, evaluations: list[dict], step: int) -> None:
        """Take over an earlier part's evaluations up to the step of the checkpoint that is resumed from."""
        self.evaluations = [old for old in evaluations if old['step'] <= step]
        best = (previous or {}).get('best')
        if best and best['step'] > step:
            key, value = best['key'], best['metrics'][best['key']]
            scored = [] if value is None else _scored(evaluations, key)
            greater = all(value >= old['metrics'][key] for old in scored)
            best = _best(self.evaluations, key, greater)
        self.fields.update(last=self.evaluations[-1] if self.evaluations else None, best=best)

    def has_evaluated(self, step: int) -> bool:
        """Return whether the weights of this step have been evaluated."""
        return any(old['step'] == step for old in self.evaluations)


def ended(failure: dict[str, str]) -> dict:
    """Return the fields of a record whose run a failure has ended: 'failed', or 'interrupted' by a signal."""
    state = 'interrupted' if failure['kind'] == 'interrupted' else 'failed'
    return dict(state=state, reason=failure['reason'], failure=failure)


def _line(entry: dict) -> str:
    return json.dumps(entry, ensure_ascii=False) + '\n'


def _scored(evaluations: list[dict], key: str) -> list[dict]:
    return [entry for entry in evaluations if entry['metrics'].get(key) is not None]


def _best(evaluations: list[dict], key: str, greater: bool) -> dict | None:
    """Return the first of the best evaluations by ``metrics[key]``, with the key.

    None if none has a value.
    """
    pick = max if greater else min
    best = pick(_scored(evaluations, key), key=lambda entry: entry['metrics'][key], default=None)
    return best and dict(best, key=key)


def available_cores() -> int:
    """Return the number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count() or 1


def describe_machine() -> dict[str, str]:
    """Return ``host`` and ``device``: the GPU's name, or the number of CPU cores."""
    import torch  # here, as a report reads records without torch

    device = (
        torch.cuda.get_device_name()
        if torch.cuda.is_available()
        else f'CPU, {available_cores()} cores'
    )
    return dict(host=socket.gethostname(), device=device)


def cost(seconds: float, seconds_per_iter: float | None, parameters: int, earlier: dict) -> dict:
    """Return the cost of a run so far.

    Args:
        seconds: Wall-clock time of this part of the run, evaluations included.
        seconds_per_iter: Mean over iterations, without evaluations.
        parameters: Number of parameters, frozen ones included.
        earlier: The cost of the parts before, which may have had other numbers of processes; empty
            if there are none.

    Returns:
        ``parameters``, ``seconds_per_iter``, ``train_seconds`` of all parts, ``peak_memory_mib`` of
        one process, the first, with ``memory_kind``, and ``gpu_hours`` over all processes and parts
        (None without a GPU).
    """
    import torch
    from mmengine.dist import get_world_size

    gpu = torch.cuda.is_available()
    if gpu:
        peak, measured = torch.cuda.max_memory_allocated() / 2**20, 'allocated on one GPU'
    else:
        peak, measured = (
            resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10,
            'resident in one process',
        )
    return dict(
        parameters=parameters,
        peak_memory_mib=round(peak, 1),
        memory_kind=measured,
        seconds_per_iter=seconds_per_iter,
        train_seconds=round((earlier.get('train_seconds') or 0.0) + seconds, 2),
        gpu_hours=(earlier.get('gpu_hours') or 0.0) + seconds * get_world_size() / 3600
        if gpu
        else None,
    )

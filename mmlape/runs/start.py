"""Whether a training may start in its work dir, and from where: decided on process 0, before anything is built."""

import os
import random
from dataclasses import dataclass, field, replace
from pathlib import Path

from mmengine.config import Config
from mmengine.logging import print_log

from mmlape.engine.runner import read_resumable
from mmlape.errors import TrainingError
from mmlape.runs.identity import differences, read_identity, software_differences
from mmlape.runs.record import check_writable, claim, lock_run, read_record

SHOWN = 6
"""Differences that a message lists."""


@dataclass
class Start:
    """How a training starts.

    Attributes:
        work_dir: where it writes.
        identity: what it is, with its ``settings``.
        previous: the record of the part that it goes on from.
        checkpoint: what it goes on from; None to begin.
        step: the iteration of that checkpoint.
        finished: whether there is nothing left to do.
        software: what differs from the software that an earlier part ran on, a line each.
        lock: the descriptor that keeps others out of the work dir.
    """

    work_dir: Path
    identity: dict
    previous: dict | None = None
    checkpoint: str | None = None
    step: int = 0
    finished: bool = False
    software: list[str] = field(default_factory=list)
    lock: int | None = None


def prepare(
    cfg: Config, work_dir: Path, identity: dict, resume: bool | str, allow_different_software: bool = False
) -> Start:
    """Takes the work dir for a run; no other process gets it before the lock is closed.

    Args:
        cfg: The configuration.
        work_dir: Made if it does not exist.
        identity: As from :func:`mmlape.runs.identity.collect`, with ``settings``; a seed of None is filled in from
            the run that goes on, or drawn.
        resume: As for :func:`mmlape.runs.record.claim`.
        allow_different_software: Whether a run may go on with other code or another stack.

    Raises:
        TrainingError: The work dir is in use, cannot be written to, or belongs to another run.
        CheckpointError: There is nothing to go on from where ``resume`` says, or it cannot be gone on from.
    """
    origin = Path(resume).absolute().parent if isinstance(resume, str) else work_dir
    previous = read_record(origin) if resume else None
    start = Start(work_dir, identity, previous)
    if previous:
        if identity['seed'] is None:
            identity['seed'] = previous.get('seed')
        finished = resume is True and previous.get('state') == 'finished'
        _refuse_other_run(start, origin, cfg, allow_different_software or finished)
        if finished:
            return replace(start, finished=True)
    check_writable(work_dir)
    start.lock = lock_run(work_dir)
    try:
        found = claim(work_dir, resume, say=lambda text: print_log(text, 'current'))
        if found:
            meta = read_resumable(found)['meta']
            _refuse_other_seed(found, meta.get('seed'), identity)
            start.checkpoint, start.step = str(found), int(meta['iter'])
    except BaseException:
        os.close(start.lock)
        raise
    if identity['seed'] is None:
        identity['seed'] = random.SystemRandom().randrange(2**31)
    return start


def _refuse_other_seed(checkpoint: Path, stored: int | None, identity: dict) -> None:
    """The seed in a checkpoint takes the place of none, and of no other."""
    if identity['seed'] is None:
        identity['seed'] = stored
    if stored is not None and stored != identity['seed']:
        raise TrainingError(
            f'{checkpoint} belongs to a run with seed {stored}, not {identity["seed"]}: resume without --seed, '
            'or start a new run in another work dir'
        )


def _refuse_other_run(start: Start, origin: Path, cfg: Config, software_may_differ: bool) -> None:
    """A run that goes on must be the one that was begun."""
    known = read_identity(origin)
    if known is None:
        print_log(f'{origin}/run.json does not say what the run is: only its seed can be compared', 'current')
        return
    software = software_differences(known, start.identity)
    found = differences(known, start.identity, for_resume=True)
    if software_may_differ:
        found = [line for line in found if line not in software]
        start.software = software
    if not found:
        return
    begun = start.previous.get('config')
    if begun and cfg.filename and Path(begun).name != Path(cfg.filename).name:
        found.insert(0, f'config file: {begun} -> {cfg.filename}')
    more = [f'and {len(found) - SHOWN} more'] if len(found) > SHOWN else []
    shown = '; '.join(found[:SHOWN] + more)
    raise TrainingError(f'{origin} holds a run that differs from this one ({shown}): {_way_out(found, software)}')


def _way_out(found: list[str], software: list[str]) -> str:
    if all(line in software for line in found):
        return '--allow-different-software goes on nevertheless, and run.json will say so'
    if any('train_cfg.max_' in line for line in found):
        return (
            'a run keeps its length, because its learning rates follow from it; to train longer, start a new run '
            'from its weights with --cfg-options load_from=CHECKPOINT --work-dir ANOTHER'
        )
    return 'go on as it was begun, or give another work dir with --work-dir'

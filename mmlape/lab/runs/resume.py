"""Whether a run may start in its work dir, and from which checkpoint.

Process 0 decides before anything is built.
"""

import os
import random
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from mmlape.checkpoint.opening import OpenedFile, open_file
from mmlape.console.log import log
from mmlape.errors import CheckpointError, TrainingError, listed
from mmlape.lab.datasets.data_content import DataContent
from mmlape.lab.decoding import decode
from mmlape.lab.runs.identity import data_differences, differences, planned_beside, software_differences, with_settings
from mmlape.lab.runs.record import check_writable, checkpoints, lock_run
from mmlape.lab.runs.schema import ENDED, Evaluation, Identity, RunRecord, read_evaluations, read_record

RESUME_KEYS = ('state_dict', 'optimizer', 'meta', 'message_hub')


@dataclass
class RunStart:
    """How a run starts."""

    identity: Identity  # the run's identity, with its ``settings`` and its seed
    previous: RunRecord | None = None  # the record of the part that it continues; None for a new run
    evaluations: list[Evaluation] = field(default_factory=list)  # all evaluations of that part
    # the checkpoint to resume from, and its iteration; None to start from the beginning
    checkpoint: OpenedFile | None = None
    iteration: int = 0
    finished: bool = False  # whether there is nothing left to do
    # software that differs from an earlier part's, one line each
    software_changes: list[str] = field(default_factory=list)
    lock: int | None = None  # descriptor of the work dir's lock


def acquire(
    work_dir: Path,
    identity: Identity,
    config: str | None,
    resume: bool | str,
    allow_different_software: bool = False,
    new_seed: int | None = None,
) -> RunStart:
    """Lock the work dir for a run; no other process gets it before the lock is closed.

    Args:
        work_dir: Made if it does not exist.
        identity: See :func:`mmlape.lab.runs.identity.collect`. A seed of None becomes the resumed
            run's, or ``new_seed``.
        config: The configuration's file.
        resume: See :func:`find_checkpoint`.
        allow_different_software: Whether a run may be resumed with other code or another stack.
        new_seed: See :func:`initial_seed`; by default random.

    Raises:
        TrainingError: The work dir is in use, cannot be written to, or belongs to another run.
        CheckpointError: There is nothing to resume from where ``resume`` points, or it is unusable.
    """
    source, previous = _previous(work_dir, resume)
    start = RunStart(replace(identity), previous, read_evaluations(source) if resume else [])
    if previous:
        if start.identity.seed is None:
            start.identity.seed = previous.seed
        finished = resume is True and previous.state == 'finished'
        recorded = with_settings(previous.identity, source)
        _require_same_run(start, recorded, source, config, allow_different_software or finished)
        if finished:
            return replace(start, finished=True)
    check_writable(work_dir)
    start.lock = lock_run(work_dir)
    try:
        # what a kill left while one was written, see mmlape.files.atomic_path
        for path in work_dir.glob('.*.pth'):
            path.unlink(missing_ok=True)
        checkpoint = find_checkpoint(work_dir, resume, log)
        if checkpoint:
            start.checkpoint = open_resumable(checkpoint)
            meta = start.checkpoint.meta
            _require_same_seed(checkpoint, meta.get('seed'), start.identity)
            recorded = _identity_in(meta, checkpoint)
            known = previous is not None and previous.identity is not None  # software was compared with that
            _require_same_run(start, recorded, checkpoint, config, known or allow_different_software)
            start.iteration = int(meta['iter'])
    except BaseException:
        os.close(start.lock)
        raise
    if start.identity.seed is None:
        start.identity.seed = initial_seed(work_dir, None, False) if new_seed is None else new_seed
    return start


def initial_seed(work_dir: Path, seed: int | None, resume: bool | str) -> int:
    """Return the seed of a run's initial weights.

    It is the given one, else that of the resumed record, else a random number.
    """
    previous = _previous(work_dir, resume)[1] or RunRecord()
    seeds = [value for value in (seed, previous.seed) if value is not None]
    return seeds[0] if seeds else random.SystemRandom().randrange(2**31)


def _previous(work_dir: Path, resume: bool | str) -> tuple[Path, RunRecord | None]:
    """Return the folder of the run to resume, and its record if there is one."""
    source = Path(resume).absolute().parent if isinstance(resume, str) else work_dir
    return source, read_record(source) if resume else None


def find_checkpoint(work_dir: str | Path, resume: bool | str, log: Callable[[str], None] = print) -> Path | None:
    """Return the checkpoint that a run resumes from; None if it starts from the beginning.

    Args:
        work_dir: The run's.
        resume: False for a new run, True for the newest complete checkpoint in ``work_dir``, or a
            checkpoint's path.
        log: Called with every decision that is not obvious.

    Raises:
        TrainingError: The work dir belongs to another run.
        CheckpointError: The named checkpoint does not exist or is damaged.
    """
    work_dir = Path(work_dir)
    if resume is True:
        newest = None
        for path in checkpoints(work_dir):
            if is_complete(path):
                newest = path
                break
            log(f'{path} is damaged (killed while writing?): skipped')
        log(f'resuming from {newest}' if newest else f'nothing to resume in {work_dir}: starting from the beginning')
        return newest
    if not resume:
        _require_unused(work_dir)
        return None
    if not Path(resume).is_file():
        raise CheckpointError(f'--resume {resume}: no such file')
    if not is_complete(resume):
        raise CheckpointError(f'--resume {resume}: damaged, or not written by torch >= 1.6')
    if Path(resume).absolute().parent != work_dir.absolute():
        _require_unused(work_dir)
    return Path(resume)


def is_complete(path: str | Path) -> bool:
    """Return whether a file is a complete archive of torch's.

    Every member's checksum is checked.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.testzip() is None
    # what zipfile and its decompressors raise for damaged archives is no closed list
    except Exception:
        return False


def open_resumable(path: str | os.PathLike) -> OpenedFile:
    """Open a checkpoint with the optimiser's state and the position; CheckpointError if it has only weights."""
    file = open_file(path, mmap=True)
    missing = [key for key in RESUME_KEYS if not isinstance(file.content.get(key), Mapping)]
    missing += [f'meta.{key}' for key in ('iter', 'epoch') if not missing and key not in file.meta]
    if missing:
        raise CheckpointError(
            f'{file.path} cannot be resumed, it holds no {", ".join(missing)}: give a checkpoint named '
            'iter_N or epoch_N, or start a new run from its weights with --cfg-options '
            'load_from=PATH'
        )
    return file


def _require_unused(work_dir: Path) -> None:
    record = read_record(work_dir)
    count = len(list(work_dir.glob('*.pth')))
    if not count and (record is None or record.state in ENDED):
        return
    content = f'{count} checkpoint{"s" * (count != 1)}'
    if record:
        content += f', a run of {record.config} that is {record.state} at iteration {record.iter}'
    raise TrainingError(f'work dir {work_dir} is already used ({content}): --resume it, or give another --work-dir')


def _require_same_seed(checkpoint: Path, stored: int | None, identity: Identity) -> None:
    """Take over the seed in a checkpoint if the run has none yet; refuse a different one."""
    if identity.seed is None:
        identity.seed = stored
    if stored is not None and stored != identity.seed:
        raise TrainingError(
            f'{checkpoint} belongs to a run with seed {stored}, not {identity.seed}: resume '
            'without --seed, or start a new run in another work dir'
        )


def _identity_in(meta: Mapping, checkpoint: Path) -> Identity | None:
    """Return the identity of the run that a checkpoint is of; None in those of older versions."""
    content = meta.get('identity')
    identity: Identity | None = decode(Identity, content, checkpoint, 'meta.identity')
    return replace(identity, settings=content.get('settings')) if identity else None


def _require_same_run(
    start: RunStart, recorded: Identity | None, source: Path, config: str | None, software_may_differ: bool
) -> None:
    """Compare a run with what a record or a checkpoint says about that which it resumes."""
    if recorded is None:
        log(f'{source} has no identity: only its seed can be compared')
        return
    start.identity = planned_beside(start.identity, recorded)
    software = software_differences(recorded, start.identity)
    lines = differences(recorded, start.identity, for_resume=True)
    if software_may_differ:
        lines = [line for line in lines if line not in software]
        start.software_changes = start.software_changes or software
    if not lines:
        return
    before = start.previous.config if start.previous else None
    if before and config and Path(before).name != Path(config).name:
        lines.insert(0, f'config file: {before} -> {config}')
    raise TrainingError(
        f'{source} holds a run that differs from this one ({listed(lines)}): {_advice(lines, software)}'
    )


def record_data(folder: Path, identity: Identity, data: Mapping[str, list[DataContent]], iteration: int) -> None:
    """Record the data of a run that starts at an iteration; of an older version's run they stay unknown.

    Raises:
        TrainingError: It resumes from a part that had other data.
    """
    if lines := data_differences(identity.data, data):
        raise TrainingError(
            f'{folder} holds a run of other data ({listed(lines)}): restore them, or give another --work-dir'
        )
    if not iteration:
        identity.data = dict(data)


def _advice(lines: list[str], software: list[str]) -> str:
    if all(line in software for line in lines):
        return '--allow-different-software resumes it nevertheless, and run.json notes it'
    if any('train_cfg.max_' in line for line in lines):
        return (
            'a run keeps its length, because its learning rates follow from it; to train longer, start '
            'a new run from its weights with --cfg-options load_from=CHECKPOINT --work-dir ANOTHER'
        )
    return 'resume it with its own settings, or give another --work-dir'

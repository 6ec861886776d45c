"""Runs on disk: ``run.json`` in a run's folder is the only state.

A single run has ``<work dir>/run.json``; mmlape.lab.runs.schema says what the files hold.

<work dir>/arms.json       the arms in the order of the command or the study
<work dir>/<arm>/
    seed_121/              the run itself
    seeds.json             the seeds that the arm is to have
    logs/seed_121.log      its output
    logs/.seed_121.lock    held from before its process starts until that ends
    slurm/seed_121.sh      its job script
    slurm/seed_121.json    the last known state of its job
"""

import fnmatch
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mmlape.errors import DataError
from mmlape.files import FIX, read_json, write_json
from mmlape.lab.decoding import Seed, decode
from mmlape.lab.runs.identity import with_settings
from mmlape.lab.runs.record import check_writable, lock_holder, running_in
from mmlape.lab.runs.schema import RECORD, BestEvaluation, Cost, Evaluation, Failure, Identity, RunRecord, read_record

PLANNED = 'seeds.json'
ORDER = 'arms.json'


@dataclass(frozen=True)
class Run:
    """The run in a work dir, as its ``run.json`` describes it."""

    folder: Path
    seed: int | None  # None if it was never started
    # 'finished', 'failed', 'interrupted' (by a signal), 'running', 'broken' (killed: recorded as
    # running, but nobody holds its lock) or 'missing'
    state: str
    arm: str = ''
    record: RunRecord = field(default_factory=RunRecord)  # empty if it was never started

    @property
    def reason(self) -> str | None:
        """Why it failed, or ended before its length; None otherwise."""
        return self.record.reason

    @property
    def last(self) -> Evaluation | None:
        """The last evaluation; None if there was none."""
        return self.record.last

    @property
    def best(self) -> BestEvaluation | None:
        """The best evaluation; None if there was none."""
        return self.record.best

    @property
    def identity(self) -> Identity | None:
        """What it is, with its settings if they can be read; None in records of older versions."""
        return self.record.identity

    @property
    def cost(self) -> Cost:
        """What it has cost."""
        return self.record.cost

    @property
    def finished(self) -> bool:
        """Whether it is recorded as finished."""
        return self.state == 'finished'

    @property
    def partial(self) -> bool:
        """Whether it is recorded as finished, but has no evaluation, or fewer iterations than a hook let it have."""
        done, end = self.record.iter, self.record.max_iters
        stopped_early = done is not None and end is not None and done < end
        stopped_early = stopped_early and not self.record.stopped
        return self.finished and (self.last is None or stopped_early)

    @property
    def counts(self) -> bool:
        """Whether it enters averages."""
        return self.finished and not self.partial

    @property
    def outcome(self) -> str:
        """Its state with iteration and reason, as text."""
        failure = self.record.failure or Failure()
        state = 'diverged' if failure.kind == 'not-finite' else 'partial' if self.partial else self.state
        if self.partial and self.last is None:
            return 'partial: it has no evaluation'
        done, end = self.record.iter, self.record.max_iters
        where = f' at iteration {done} of {end}' if not self.counts and done is not None and end is not None else ''
        reason = self.reason or failure.reason
        return f'{state}{where}: {reason}' if reason else f'{state}{where}'


def seed_folder(folder: str | Path, seed: int) -> Path:
    """Return the work dir of a seed's run in an arm's folder."""
    return Path(folder) / f'seed_{seed}'


def read_run(folder: str | Path, seed: int | None = None) -> Run:
    """Read the record of a run; DataError if it has no state, or another seed than the given one."""
    folder = Path(folder)
    record, place = read_record(folder), folder.absolute().parent.name
    if record is None:
        return Run(folder, seed, 'missing', place)
    if seed is not None and record.seed is not None and record.seed != seed:
        raise DataError(
            f'{folder} holds a run with seed {record.seed}, not {seed}: move it away, or use another --work-dir'
        )
    if (state := record.state) is None:
        raise DataError(f'{folder / RECORD} is no record of a run, it has no state: {FIX}')
    if state == 'running' and running_in(folder) is None:
        state = 'broken'
    record.identity = with_settings(record.identity, folder)
    seed = seed if record.seed is None else record.seed
    return Run(folder, seed, state, record.arm or place, record)


def read_seeds(folder: str | Path, seeds: Sequence[int] | None = None) -> list[Run]:
    """Return the runs in an arm's folder: of these seeds, or of every ``seed_*`` in it."""
    seeds = _seeds_in(Path(folder)) if seeds is None else seeds
    return [read_run(seed_folder(folder, seed), seed) for seed in seeds]


def read_arm(folder: str | Path) -> list[Run]:
    """Return the runs of an arm: of every seed in its folder or planned there, and one in the folder itself."""
    folder = Path(folder)
    planned = decode(list[Seed], read_json(folder / PLANNED, list), folder / PLANNED, 'seeds') or ()
    runs = read_seeds(folder, sorted({*_seeds_in(folder), *planned}))
    return [*runs, *([read_run(folder)] if read_record(folder) else [])]


def read_arms(work_dir: str | Path, names: Sequence[str] | None = None) -> dict[str, list[Run]]:
    """Return the runs of every arm below a work dir, at any depth, or of the one arm whose folder it is.

    Args:
        work_dir: Holds ``<arm>/seed_<S>`` or work dirs of single runs, itself or in folders below
            it. An arm is called as its runs recorded it, below the path of the folder it is in.
        names: The arms, in this order, or patterns as shells write them ('rms*'); by default all,
            in the order of the command that started them, then by name.

    Raises:
        DataError: There are no runs, or no arms of these names.
    """
    folder = Path(work_dir)
    arms = {}
    for path in _folders(folder, set()):
        if runs := read_arm(path):
            place = Path(folder.absolute().name) if path == folder else path.relative_to(folder)
            recorded = next((run.record.arm for run in runs if run.record.arm), place.name)
            name = (place.parent / recorded).as_posix()
            # of a copy, its folder tells it from the first
            arms[place.as_posix() if name in arms else name] = runs
    if not arms:
        raise DataError(
            f'no runs in {folder}: expected a run.json, <run>/run.json or '
            '<arm>/seed_<number>/run.json, as `mmlape train` and `mmlape multi-seed` write'
        )
    fitting = {name: fnmatch.filter(arms, name) for name in names or ('*',)}
    unknown = [name for name, found in fitting.items() if not found]
    if unknown:
        raise DataError(f'no arm {", ".join(unknown)} in {folder}; there are: {", ".join(arms)}')
    return {name: arms[name] for found in fitting.values() for name in found}


def _folders(folder: Path, visited: set[Path]) -> Iterator[Path]:
    """Yield a folder and those below it that may be arms, each once; links may form circles."""
    if folder.resolve() in visited:
        return
    visited.add(folder.resolve())
    yield folder
    below = [path for path in folder.glob('*/') if path.is_dir() and not re.match(r'\.|seed_\d+$', path.name)]
    places = {name: place for place, name in enumerate(_order(folder))}
    # part by part, so that deit-tiny_... stands before deit-tiny-lape_...
    for path in sorted(below, key=lambda path: (places.get(path.name, len(places)), path.name.split('_'))):
        yield from _folders(path, visited)


def write_planned(folder: str | Path, seeds: Sequence[int]) -> None:
    """Record which seeds an arm is to have, so that those without a run are missing ones."""
    check_writable(Path(folder))
    write_json(Path(folder) / PLANNED, sorted(seeds))


def write_order(work_dir: str | Path, names: Sequence[str]) -> None:
    """Record the order of the arms.

    A command that names only some of those recorded leaves their order as it is.
    """
    earlier = _order(Path(work_dir))
    merged = [*names, *earlier] if {*earlier} <= {*names} else [*earlier, *names]
    write_json(Path(work_dir) / ORDER, list(dict.fromkeys(merged)))


def _order(work_dir: Path) -> list[str]:
    return decode(list[str], read_json(work_dir / ORDER, list), work_dir / ORDER, 'arms') or []


def _seeds_in(folder: Path) -> list[int]:
    return sorted(int(path.name[5:]) for path in folder.glob('seed_*') if path.name[5:].isdecimal())


def log_file(run: Path) -> Path:
    """Return the file that receives the output of a run."""
    return run.parent / 'logs' / f'{run.name}.log'


def start_lock(run: Path) -> Path:
    """Return the lock of the process that starts a run.

    Training itself locks the run's folder later.
    """
    return run.parent / 'logs' / f'.{run.name}.lock'


def holder(run: Path) -> dict | None:
    """Return which process trains or starts a run now, as `lock_holder`; None if none does."""
    return running_in(run) or lock_holder(start_lock(run))


def job_script(run: Path) -> Path:
    """Return the sbatch script of a run."""
    return run.parent / 'slurm' / f'{run.name}.sh'


def job_file(run: Path) -> Path:
    """Return the file that records the Slurm job of a run."""
    return run.parent / 'slurm' / f'{run.name}.json'

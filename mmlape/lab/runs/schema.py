"""What runs leave on disk, as dataclasses: this module alone reads and writes these files.

<run>/run.json             `RunRecord`: what the run is, and its progress
<run>/settings.json        its settings, see `mmlape.lab.runs.identity.settings`
<run>/evaluations.jsonl    all evaluations, a line each
<arm>/slurm/seed_121.json  `JobState`: the last known state of a run's Slurm job
"""

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from mmlape.errors import DataError
from mmlape.files import atomic_path, read_json, read_json_lines, write_json
from mmlape.lab.datasets.data_content import DataContent
from mmlape.lab.decoding import FIX, LATER, UNSTORED, FieldRule, Seed, decode, encode, is_number, stored_fields
from mmlape.lab.extension import PaperModel

RECORD = 'run.json'
SETTINGS = 'settings.json'
HISTORY = 'evaluations.jsonl'
"""All evaluations, a line each. A line counts once ``run.json`` has that evaluation, or a later
one, as its last."""
STATES = ('running', 'finished', 'failed', 'interrupted')
ENDED = ('failed', 'interrupted')
"""States of a run that has ended before its length."""

Metric = Annotated[float, FieldRule('a number', lambda value: is_number(value, may_be_undefined=True))]
Text = Annotated[str, FieldRule('a text', lambda value: isinstance(value, str))]
State = Annotated[str, FieldRule(f'one of {", ".join(STATES)}', lambda value: value in STATES)]


@dataclass(kw_only=True)
class Evaluation:
    """The metrics of an evaluation, as they were returned; None is undefined."""

    step: int  # the iteration
    epoch: int | None = field(metadata=LATER, default=None)
    metrics: dict[str, Metric | None]
    # {metric: {class: value}}
    per_class: dict[str, dict[str, Metric | None]] = field(metadata=LATER, default_factory=dict)


@dataclass(kw_only=True)
class BestEvaluation(Evaluation):
    """The best evaluation of a run, by ``metrics[key]``."""

    key: str

    @property
    def value(self) -> float | None:
        """The metric that decides."""
        return self.metrics[self.key]


@dataclass(kw_only=True)
class Cost:
    """The cost of a run so far; what is not known is None."""

    parameters: int | None = None  # frozen ones included
    peak_memory_mib: float | None = None  # of one process, the first
    memory_kind: str | None = None  # what that measures
    seconds_per_iter: float | None = None  # mean over iterations, without evaluations
    train_seconds: float | None = None  # of all parts, evaluations included
    gpu_hours: float | None = None  # over all processes and parts; None without a GPU


@dataclass(kw_only=True)
class Failure:
    """Why a run has failed: the name of a type of failures, and a sentence."""

    kind: str | None = None
    reason: Text | None = None


@dataclass(kw_only=True)
class Stop:
    """The hook that has ended a run before its length, why, and at which iteration."""

    hook: str
    cause: Text | None = None
    iter: int


@dataclass(kw_only=True)
class StartWeights:
    """The checkpoints that a run starts from, joined by ' + '."""

    name: str
    sha256: str | None = None  # None if a file is not here


@dataclass(kw_only=True)
class Code:
    """The code that a run was trained with."""

    version: str | None = None  # of this package
    # of older versions: the hash of all modules
    source: str | None = field(metadata=LATER, default=None)
    commit: str | None = None  # of its checkout; only named, never compared
    # {module: hash}, of what the run had imported; empty in records of older versions, and before
    # the first iteration
    modules: dict[str, str] = field(metadata=LATER, default_factory=dict)

    @property
    def digest(self) -> str | None:
        """A hash of all that counts; None if that is not known."""
        named = json.dumps(self.modules, sort_keys=True).encode()
        return hashlib.sha256(named).hexdigest() if self.modules else self.source


@dataclass(kw_only=True)
class Identity:
    """What a run is: see :mod:`mmlape.lab.runs.identity`."""

    settings_sha256: str | None = None
    seed: Seed | None = None
    world_size: int | None = None  # number of processes
    total_batch: int | None = None  # images of one optimiser step
    amp: str | None = None  # 'bf16' or 'fp16'
    # 'recipe', 'unknown', 'auto-scale-lr', 'accumulate' or 'allow-batch-mismatch'
    batch_policy: str | None = None
    # 'layers' or 'backbone'; None for a model that is not compiled
    compiled: str | None = field(metadata=LATER, default=None)
    checkpoint: StartWeights | None = None
    loads: list[str] = field(default_factory=list)  # the keys of the config that name it
    # by 'train' and 'val', of each dataset; None in records of older versions, and before the first iteration
    data: dict[str, list[DataContent]] | None = field(metadata=LATER, default=None)
    code: Code = field(default_factory=Code)
    stack: dict[str, str] = field(default_factory=dict)  # versions of what computes
    paper: PaperModel | None = field(metadata=LATER, default=None)
    # what ``settings.json`` beside the record holds; None if it cannot be read
    settings: dict[str, Any] | None = field(metadata=UNSTORED, default=None)


@dataclass(kw_only=True)
class RunRecord:
    """The content of ``run.json``."""

    config: str | None = None  # the configuration's file
    study: str | None = field(
        metadata=LATER, default=None
    )  # the study's arm that it is, as commands take it: FILE.yml:ARM
    arm: str | None = field(metadata=LATER, default=None)  # what its arm is called
    mmlape: str | None = None  # version of this package
    seed: Seed | None = None
    world_size: int | None = None
    images_per_process: int | None = None
    accumulation: int | None = None
    total_batch: int | None = None
    distributed: str | None = None  # 'ddp', or 'fsdp' of an older version; None for one process
    identity: Identity | None = None
    software_changes: list[str] = field(default_factory=list)
    host: str | None = None
    device: str | None = None
    # how many runs may share that device, by `multi-seed --per-gpu`; its seconds are not of a run alone
    sharing: int | None = field(metadata=LATER, default=None)
    started: str | None = None
    iter: int | None = None  # iterations that are done
    max_iters: int | None = None
    epoch: int | None = field(metadata=LATER, default=None)
    max_epochs: int | None = field(metadata=LATER, default=None)
    last: Evaluation | None = None
    best: BestEvaluation | None = None
    stopped: Stop | None = None
    cost: Cost = field(default_factory=Cost)
    parts: list[str] = field(default_factory=list)  # folders of logs, oldest first
    state: State | None = None
    reason: Text | None = None  # why it failed, or ended before its length
    failure: Failure | None = None
    updated: float | None = field(metadata=LATER, default=None)  # when this was written, in seconds since 1970
    loss: Any = field(metadata=LATER, default=None)
    eta: float | None = field(metadata=LATER, default=None)  # seconds left
    finished: str | None = field(metadata=LATER, default=None)
    unknown: dict[str, Any] = field(metadata=UNSTORED, default_factory=dict)  # keys of other versions


@dataclass(kw_only=True)
class JobState:
    """The last known state of a Slurm job."""

    job: str
    state: str
    ended: bool = False
    updated: float | None = None


def read_record(work_dir: str | Path) -> RunRecord | None:
    """Return the record of the run in ``work_dir``; None if there is none.

    Raises:
        DataError: It cannot be read, or a field of it has another type than this package writes.
    """
    path = Path(work_dir) / RECORD
    content = read_json(
        path, fix='restore the file; or delete it, and --resume the run, whose checkpoints tell its like'
    )
    if content is None:
        return None
    record: RunRecord = decode(RunRecord, content, path)
    record.unknown = {name: value for name, value in content.items() if name not in stored_fields(RunRecord)}
    best = record.best
    if best and best.key not in best.metrics:
        raise DataError(
            f'{path}: best.key={best.key!r} is none of best.metrics, which has '
            f'{", ".join(best.metrics) or "none"}: {FIX}'
        )
    return record


def write_record(work_dir: str | Path, record: RunRecord) -> None:
    """Write the record of a run."""
    write_json(Path(work_dir) / RECORD, {**record.unknown, **encode(record)})


def read_evaluations(work_dir: str | Path) -> list[Evaluation]:
    """Return all evaluations of the run in ``work_dir``, oldest first.

    Raises:
        DataError: As `read_record`, or the same of a line of the history, or it lacks what the record has.
    """
    record, path = read_record(work_dir), Path(work_dir) / HISTORY
    fix = 'restore the file; or delete it, without which earlier evaluations are unknown'
    evaluations: list[Evaluation] = []
    if not path.exists():
        return []
    for number, content in enumerate(read_json_lines(path, fix), 1):
        entry = decode(Evaluation, content, path, f'line {number}')
        if entry is not None:
            append_evaluation(evaluations, entry)
    if record:
        end = record.last.step if record.last else 0
        evaluations = [entry for entry in evaluations if entry.step <= end]
        if evaluations[-1:] != [record.last] * bool(record.last):
            raise DataError(f'{path} and {path.with_name(RECORD)} have other last evaluations: {fix}')
    return evaluations


def append_evaluation(evaluations: list[Evaluation], entry: Evaluation) -> None:
    """Append an evaluation; those of its step or later ones are of an earlier part that was rewound."""
    while evaluations and evaluations[-1].step >= entry.step:
        evaluations.pop()
    evaluations.append(entry)


def write_evaluations(work_dir: str | Path, evaluations: Iterable[Evaluation]) -> None:
    """Write the history of a run anew."""
    with atomic_path(Path(work_dir) / HISTORY) as partial:
        partial.write_text(''.join(map(_line, evaluations)), encoding='utf-8')


def write_evaluation(work_dir: str | Path, entry: Evaluation) -> None:
    """Write an evaluation behind those before it."""
    with open(Path(work_dir) / HISTORY, 'a', encoding='utf-8') as file:
        file.write(_line(entry))
        file.flush()
        os.fsync(file.fileno())  # before the record that counts it, also where the power fails


def _line(entry: Evaluation) -> str:
    return json.dumps(encode(entry), ensure_ascii=False) + '\n'


def read_job(file: Path) -> JobState | None:
    """Return the state of a Slurm job; None if none is recorded."""
    return decode(JobState, read_json(file), file)


def write_job(file: Path, job: JobState) -> None:
    """Record the state of a Slurm job."""
    write_json(file, encode(job))

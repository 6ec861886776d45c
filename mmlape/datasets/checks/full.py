"""Looks at every picture and annotation of a config's data, and collects what is wrong instead of stopping at it."""

import hashlib
import os
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from mmengine import Config

from mmlape.datasets.checks.base import ERROR, WARNING, DataSummary, FileFacts, Item, Look, Problem, shorten, spread
from mmlape.datasets.checks.findings import Findings
from mmlape.datasets.checks.quick import check_evaluator, check_heads, iter_looks
from mmlape.errors import DataError

CHUNK = 16  # pictures a thread, that are handed out at a time


class Progress(Protocol):
    """Where the check says how far it is."""

    def begin(self, what: str, total: int) -> None:
        """A data set with this many pictures comes next."""

    def advance(self) -> None:
        """One picture is done."""


@dataclass
class FullReport:
    """What the full check saw.

    Attributes:
        summaries: One a data set.
        looked_at: How many pictures were opened, by data set.
        interrupted: Whether it was ended before everything was seen.
    """

    findings: Findings = field(default_factory=Findings)
    summaries: list[DataSummary] = field(default_factory=list)
    looked_at: list[int] = field(default_factory=list)
    interrupted: bool = False
    seconds: float = 0.0


def full_check(
    cfg: Config, splits: Sequence[str], progress: Progress, sample: int | None = None, workers: int | None = None
) -> FullReport:
    """Checks the data sets, evaluators and heads of a config against the files on disk, all of them.

    Args:
        cfg: A config.
        splits: Which of 'train', 'val', 'test' to check.
        progress: Is told how far the check is.
        sample: How many pictures of each data set to open; all by default.
        workers: Threads that decode; one a core by default.

    Returns:
        What was found; after Ctrl-C, what was found until then.
    """
    report, begun = FullReport(), time.monotonic()
    copies = Copies()
    try:
        for look in iter_looks(cfg, splits, whole=True):
            _look_wholly(cfg, look, report, copies, progress, sample, workers or os.cpu_count() or 1)
        for split in splits:
            _note(report, split, 'evaluator', check_evaluator, cfg.get(f'{split}_evaluator'), split)
    except KeyboardInterrupt:
        report.interrupted = True
    for split, problem in copies.problems(whole=sample is None and not report.interrupted):
        report.findings.add(split, problem)
    report.seconds = time.monotonic() - begun
    return report


def _note(report: FullReport, split: str, kind: str, check, *args) -> None:
    """Runs a check that raises at what it finds."""
    try:
        check(*args)
    except DataError as error:
        report.findings.add(split, Problem(ERROR, kind, str(error)))


def _look_wholly(
    cfg: Config, look: Look, report: FullReport, copies: 'Copies', progress: Progress, sample: int | None, workers: int
) -> None:
    split, summary = look.source.split, look.summary
    report.summaries.append(summary)
    report.looked_at.append(0)
    progress.begin(f'{split}: {summary.path}', 0)
    for problem in look.structure():
        report.findings.add(split, problem)
    _note(report, split, 'heads', check_heads, cfg, look.source, summary.num_classes)
    items = look.items if sample is None else spread(look.items, sample)
    progress.begin(f'{split}: {summary.path}', len(items))
    with ThreadPoolExecutor(workers) as pool:
        for start in range(0, len(items), CHUNK * workers):
            chunk = items[start : start + CHUNK * workers]
            for item, (facts, digest) in zip(chunk, pool.map(lambda item: _examine(look, item), chunk), strict=True):
                for problem in facts.problems:
                    report.findings.add(split, problem)
                look.take(facts)
                copies.add(split, item, digest)
                report.looked_at[-1] += 1
                progress.advance()
    if sample is None:
        _note_unseen(look, report)


def _examine(look: Look, item: Item) -> tuple[FileFacts, bytes | None]:
    """One picture; whatever a decoder raises is a problem of this picture alone."""
    try:
        facts = look.look(item)
    except Exception as error:
        facts = FileFacts([Problem(ERROR, 'unreadable image', f'{item.path} cannot be looked at: {error!r}.')])
    try:
        return facts, hashlib.blake2b(Path(item.path).read_bytes(), digest_size=16).digest()
    except OSError:
        return facts, None


def _note_unseen(look: Look, report: FullReport) -> None:
    split, unseen = look.source.split, look.unseen()
    if unseen and look.summary.labels:
        what = 'cannot be learnt' if split == 'train' else 'count for nothing in the evaluation, or as zero'
        text = f'{len(unseen)} of {look.summary.num_classes} classes never occur, so they {what}: {shorten(unseen)}.'
        report.findings.add(split, Problem(WARNING, 'class that never occurs', text, len(unseen)))


class Copies:
    """Files of the same content; equal names mean nothing."""

    def __init__(self) -> None:
        self._owners: dict[bytes, list[tuple[str, Item]]] = defaultdict(list)
        self._counts: dict[str, int] = defaultdict(int)

    def add(self, split: str, item: Item, digest: bytes | None) -> None:
        """Remembers a picture by the hash of its file."""
        if digest is not None:
            self._owners[digest].append((split, item))
            self._counts[split] += 1

    def problems(self, whole: bool) -> Iterator[tuple[str, Problem]]:
        """Pictures that stand in training and in validation or test, and those that stand twice in one split.

        Args:
            whole: Whether all pictures have been seen: then a validation set that is wholly trained on is an error.
        """
        shared: dict[str, list[tuple[str, str]]] = defaultdict(list)
        for owners in (owners for owners in self._owners.values() if len(owners) > 1):
            first = dict(reversed(owners))
            for split, item in owners:
                if split != 'train' and 'train' in first:
                    shared[split].append((item.path, first['train'].path))
                if item is not first[split]:
                    yield split, _twice(item, first[split])
        for split, pairs in shared.items():
            everything = whole and len(pairs) == self._counts[split]
            for path, other in pairs:
                text = f'{path} is {other} of the train data.'
                if everything:
                    text = f'All {len(pairs)} images of {split} are trained on, so its results mean nothing: {text}'
                yield split, Problem(ERROR if everything else WARNING, f'image in train and {split}', text)


def _twice(item: Item, first: Item) -> Problem:
    if isinstance(item.about, int) and item.about != first.about:
        text = f'{item.path} is {first.path}, of another class.'
        return Problem(WARNING, 'one image, two classes', text)
    return Problem(WARNING, 'image twice', f'{item.path} is {first.path}.')

"""The full check of a config's data: every image and annotation is checked, and all issues are collected."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol

from mmengine import Config

from mmlape.datasets.checks.duplicates import Duplicates, file_digest
from mmlape.datasets.formats import distinct, iter_sources
from mmlape.datasets.formats.base import DataSource, DataSummary, ImageEntry, ImageFacts, shorten
from mmlape.datasets.heads import check_evaluator, check_heads, patch_size
from mmlape.datasets.issues import ERROR, WARNING, DataIssue, IssueLog
from mmlape.datasets.sources import spread
from mmlape.errors import DataError

CHUNK = 16  # images submitted to each thread at a time


class Progress(Protocol):
    """A display of the check's progress."""

    def start(self, description: str, total: int) -> None:
        """Start on a dataset with this many images; 0 while its annotations are read."""

    def advance(self) -> None:
        """Count one image."""


@dataclass
class FullReport:
    """The result of the full check.

    Attributes:
        issues: What is wrong.
        summaries: One for each dataset.
        checked: How many images were opened, for each dataset.
        interrupted: Whether it ended before everything was checked.
        seconds: Its duration.
    """

    issues: IssueLog = field(default_factory=IssueLog)
    summaries: list[DataSummary] = field(default_factory=list)
    checked: list[int] = field(default_factory=list)
    interrupted: bool = False
    seconds: float = 0.0


def full_check(
    cfg: Config, splits: Sequence[str], progress: Progress, sample: int | None = None, workers: int | None = None
) -> FullReport:
    """Check all files of a config's datasets, and its heads and evaluators.

    Args:
        cfg: A config.
        splits: Which of 'train', 'val', 'test' to check.
        progress: Shows the progress.
        sample: How many images of each dataset to open; all by default.
        workers: Threads that decode; one for each core by default.

    Returns:
        All issues; after Ctrl-C, those up to then.
    """
    report, started, duplicates = FullReport(), time.monotonic(), Duplicates()
    workers, smallest = workers or os.cpu_count() or 1, patch_size(cfg)
    try:
        for source in distinct(iter_sources(cfg, splits)):
            split = source.split
            entries = _check_structure(cfg, source, report, progress, sample)
            for entry, facts, digest in _check_images(source, entries, smallest, workers):
                report.issues.add(split, facts.issues)
                source.count(facts)
                duplicates.add(split, entry, digest)
                report.checked[-1] += 1
                progress.advance()
            if sample is None:
                report.issues.add(split, _unseen_classes(source))
        for split in splits:
            report.issues.add(split, _issues_of(check_evaluator, 'evaluator', cfg.get(f'{split}_evaluator'), split))
    except KeyboardInterrupt:
        report.interrupted = True
    for split, issue in duplicates.issues(complete=sample is None and not report.interrupted):
        report.issues.add(split, [issue])
    report.seconds = time.monotonic() - started
    return report


def _check_structure(
    cfg: Config, source: DataSource, report: FullReport, progress: Progress, sample: int | None
) -> Sequence[ImageEntry]:
    """Check a dataset's structure and the heads; return the images to open."""
    split, summary = source.split, source.summary
    report.summaries.append(summary)
    report.checked.append(0)
    progress.start(f'{split}: {summary.path}', 0)
    report.issues.add(split, source.structure_issues(complete=True))
    report.issues.add(split, _issues_of(check_heads, 'heads', cfg, source))
    entries = source.entries if sample is None else spread(source.entries, sample)
    progress.start(f'{split}: {summary.path}', len(entries))
    return entries


def _check_images(
    source: DataSource, entries: Sequence[ImageEntry], smallest: int, workers: int
) -> Iterator[tuple[ImageEntry, ImageFacts, bytes | None]]:
    """Yield each entry with its facts and the hash of its file, in order, decoded by threads."""

    def check_one(entry: ImageEntry) -> tuple[ImageEntry, ImageFacts, bytes | None]:
        try:
            facts = source.check_image(entry, smallest)
        except Exception as error:  # whatever a decoder raises is an issue of this image alone
            facts = ImageFacts([DataIssue(ERROR, 'unreadable image', f'{entry.path} cannot be checked: {error!r}.')])
        return entry, facts, file_digest(entry.path)

    with ThreadPoolExecutor(workers) as pool:
        for start in range(0, len(entries), CHUNK * workers):
            yield from pool.map(check_one, entries[start : start + CHUNK * workers])


def _issues_of(check: Callable[..., None], kind: str, *args) -> Iterator[DataIssue]:
    """Run a check that raises `DataError`."""
    try:
        check(*args)
    except DataError as error:
        yield DataIssue(ERROR, kind, str(error))


def _unseen_classes(source: DataSource) -> Iterator[DataIssue]:
    unseen = source.unseen()
    if unseen and source.summary.labels:
        effect = 'cannot be learnt' if source.split == 'train' else 'are not evaluated, or count as zero'
        classes = f'{len(unseen)} of {source.summary.num_classes} classes'
        message = f'{classes} never occur, so they {effect}: {shorten(unseen)}.'
        yield DataIssue(WARNING, 'class that never occurs', message, len(unseen))

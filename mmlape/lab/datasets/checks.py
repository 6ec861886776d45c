"""The checks of a config's data against the files on disk.

The quick one comes before a model is built: one clear message instead of a crash later. It covers
paths, class names, every record of an annotation file, and a sample of the images. What is left
shows while training, in the transforms that `mmlape.lab.datasets.transforms.guard_loading` puts in. The
full one covers every image and annotation, and collects all issues for tables and JSON.
"""

import logging
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from mmengine import Config
from rich.markup import escape
from rich.progress import track
from rich.table import Table

from mmlape.console.log import log
from mmlape.console.quiet import printable
from mmlape.console.terminal import console
from mmlape.errors import DataError
from mmlape.files import write_json
from mmlape.lab.datasets.data_content import digest_of
from mmlape.lab.datasets.folders import spread
from mmlape.lab.datasets.formats import SPLITS, distinct, iter_sources
from mmlape.lab.datasets.formats.base import (
    ERROR,
    DataIssue,
    DataSource,
    DataSummary,
    ImageEntry,
    ImageFacts,
    error,
    shorten,
    warning,
)
from mmlape.lab.datasets.retarget import iter_heads, reads_head
from mmlape.lab.datasets.transforms import patch_size

SAMPLE = 32  # images that the quick check opens
MAX_EXAMPLES = 5  # of a group
CHUNK = 16  # images submitted to each thread at a time
EXAMPLES_SHOWN = 3  # in the table; JSON has a few more
RAREST_SHOWN = 3


@dataclass
class FullReport:
    """The result of a check."""

    summaries: list[DataSummary] = field(default_factory=list)  # one for each dataset
    seconds: float = 0.0  # its duration
    groups: dict[tuple[str, str, str], DataIssue] = field(default_factory=dict)  # in the order of their first issue

    def add(self, split: str, issues: Iterable[DataIssue]) -> None:
        """Add issues of a split to their groups."""
        for issue in issues:
            key = split, issue.severity, issue.topic
            group = self.groups.setdefault(key, replace(issue, split=split, count=0, examples=[]))
            group.count += issue.count
            if len(group.examples) < MAX_EXAMPLES:
                group.examples.append(issue.message)

    @property
    def errors(self) -> list[DataIssue]:
        """The groups that would end or spoil a run."""
        return [group for group in self.groups.values() if group.severity == ERROR]

    @property
    def issues(self) -> list[DataIssue]:
        """All groups, errors first."""
        return sorted(self.groups.values(), key=lambda group: group.severity != ERROR)


def check_data(
    cfg: Config, splits: Sequence[str] = SPLITS, sources: Iterable[DataSource] | None = None
) -> list[DataSummary]:
    """Check the datasets and heads of a config's splits against the files on disk.

    Return and log a summary of each dataset. Datasets of unknown format and on remote storage are
    skipped.

    Raises:
        DataError: The first error, of a path, a class, a label id or an image, how to fix it, and
            how many more there are.
    """
    report = FullReport()
    every = iter_sources(cfg, splits) if sources is None else sources
    for source in distinct(source for source in every if source.split in splits):
        _check(report, cfg, source, SAMPLE, complete=False)
        if report.errors:
            raise DataError(_summed_up(report.errors))
        log(str(source.summary))
    for group in report.issues:
        log(f'{group.split} data: {group}', logging.WARNING)
    return report.summaries


def _summed_up(errors: list[DataIssue]) -> str:
    """Return the message of the first error, and how many more there are."""
    first, kinds = errors[0], len(errors) - 1
    more = f' (and {first.count - 1} more)' if len(first.examples) > 1 else ''
    others = f' {kinds} more kind{"s" * (kinds > 1)} of error: see mmlape check-data.'
    return first.message + more + others * bool(kinds)


def check_heads(cfg: Config, source: DataSource) -> Iterator[str]:
    """Say which heads have another number of outputs than the data has classes, or one to choose from."""
    if not reads_head(cfg, source.split):
        return
    expected = len(source.classes) if source.classes else source.summary.num_classes
    for metric, options in source.metrics:
        most = np.max(options.get('topk', 1)) if metric and metric.__name__ == 'Accuracy' else 1
        if expected and most > expected:
            yield (
                f'{source.split}_evaluator (Accuracy) has topk={options["topk"]}, but the '
                f'{source.split} data has {expected} classes: set topk=1.'
            )
    for name, head, key in iter_heads(cfg):
        largest = max(source.summary.seen, default=0)
        if expected and head[key] != expected:
            yield (
                f'{name} is {head[key]}, but the {source.split} data in '
                f'{source.root or source.image_dir} has {expected} classes: set {name}={expected}, '
                f'or pass --cfg-options data_root={source.root.rstrip("/")}, which sets it '
                'everywhere.'
            )
        elif not expected and largest >= head[key]:  # a list of labels, and no names of classes
            yield (
                f'{name} is {head[key]}, but the {source.split} data in {source.ann_file} has the '
                f'label {largest}: set {name} and metainfo=dict(classes=...) of the dataset.'
            )
        elif head[key] == 1 and _chooses(cfg, name, head):
            yield (
                f'{name} is 1, the only class of the {source.split} data in '
                f'{source.root or source.image_dir}, and the loss of a choice between one class is '
                '0: name a second class, such as that of the rest of the images.'
            )
        yield from _check_class_weights(name, head, head[key])


def _check_class_weights(name: str, node: dict, classes: int) -> Iterator[str]:
    """Say which losses of a head have weights of another number of classes."""
    for key, child in node.items():
        parts = child if isinstance(child, (list, tuple)) else [child]
        for loss in [part for part in parts if isinstance(part, dict)]:
            weights = loss.get('class_weight')
            # a softmax of boxes has a class more, of the background
            numbers = {classes, classes + 1} if key == 'loss_cls' else {classes}
            if isinstance(weights, (list, tuple)) and len(weights) not in numbers:
                yield (
                    f'{name.rpartition(".")[0]}.{key}.class_weight has {len(weights)} weights, but {name} is '
                    f'{classes}: give {" or ".join(map(str, sorted(numbers)))}, one for each class.'
                )


def _chooses(cfg: Config, name: str, head: dict) -> bool:
    """Return whether a head's loss is that of a softmax over its classes, without another for the background."""
    if cfg.get('default_scope') not in ('mmseg', 'mmpretrain') or name.startswith('data_prepro'):
        return False
    losses = head.get('loss_decode') or head.get('loss') or {}
    parts = losses if isinstance(losses, (list, tuple)) else [losses]
    return 'loss_cls' not in head and not any(part.get('use_sigmoid') for part in parts)


def find_duplicates(images: Iterable[tuple[str, str, bytes]], complete: bool) -> Iterator[tuple[str, DataIssue]]:
    """Yield (split, issue) for images shared with the training data, and for duplicates within a split.

    Args:
        images: Split, path and hash of the file of each, see `digest_of`.
        complete: Whether these are all; then a split that is completely trained on is an error.
    """
    first: dict[tuple[str, bytes], str] = {}
    hashed = [image for image in images if image[2]]
    for split, path, digest in hashed:
        original = first.setdefault((split, digest), path)
        if original != path:
            yield split, warning('duplicate image', f'{path} is {original}.')
    for split in dict.fromkeys(split for split, _, _ in hashed if split != 'train'):
        of_split = [(path, digest) for name, path, digest in hashed if name == split]
        shared = [(path, first['train', digest]) for path, digest in of_split if ('train', digest) in first]
        issue, start = warning, ''
        if complete and len(shared) == len(of_split):
            issue, start = error, f'All {len(shared)} images of {split} are trained on, so its results mean nothing: '
        for path, other in shared:
            yield split, issue(f'image in train and {split}', f'{start}{path} is {other} of the train data.')


def full_check(
    cfg: Config, splits: Sequence[str], sample: int | None = None, workers: int | None = None
) -> FullReport:
    """Check all files of a config's datasets, and its heads, with a progress bar.

    Args:
        cfg: A config.
        splits: Which of 'train', 'val', 'test' to check.
        sample: How many images of each dataset to open; all by default.
        workers: Threads that decode; one for each core by default.

    Returns:
        All issues.
    """
    report, started, hashed = FullReport(), time.monotonic(), []
    for source in distinct(iter_sources(cfg, splits)):
        hashed += _check(report, cfg, source, sample, complete=True, workers=workers or os.cpu_count() or 1)
        if sample is None:
            report.add(source.split, _unseen_classes(source))
    for split, issue in find_duplicates(hashed, complete=sample is None):
        report.add(split, [issue])
    report.seconds = time.monotonic() - started
    return report


def _check(
    report: FullReport, cfg: Config, source: DataSource, sample: int | None, complete: bool, workers: int = 1
) -> list[tuple[str, str, bytes]]:
    """Add the issues and the summary of a dataset to a report; return split, path and hash of each opened image."""
    split, summary, stderr = source.split, source.summary, console(stderr=True)
    report.summaries.append(summary)
    report.add(split, source.structure_issues(complete))
    report.add(split, (error('heads', message) for message in check_heads(cfg, source)))
    entries = source.entries if sample is None else spread(source.entries, sample)
    images, hashed = _check_images(source, entries, patch_size(cfg), workers, hashing=complete), []
    is_shown = complete and stderr.is_terminal
    description = escape(f'{split}: {summary.path}')
    for entry, facts, digest in track(images, description, len(entries), console=stderr, disable=not is_shown):
        report.add(split, facts.issues)
        source.count(facts)
        hashed.append((split, entry.path, digest))
    summary.checked = len(entries)
    report.add(split, source.nothing_to_learn())
    return hashed


def _check_images(
    source: DataSource, entries: Sequence[ImageEntry], smallest: int, workers: int, hashing: bool
) -> Iterator[tuple[ImageEntry, ImageFacts, bytes]]:
    """Yield each entry with its facts and the hash of its file, if that is asked for, in order, decoded by threads."""

    def check_one(entry: ImageEntry) -> tuple[ImageEntry, ImageFacts, bytes]:
        try:
            facts = source.check_image(entry, smallest)
        except Exception as reason:  # whatever a decoder raises is an issue of this image alone
            facts = ImageFacts([error('unreadable image', f'{entry.path} cannot be checked: {reason!r}.')])
        return entry, facts, digest_of(entry.path) if hashing else b''

    with ThreadPoolExecutor(workers) as pool:
        for start in range(0, len(entries), CHUNK * workers):
            yield from pool.map(check_one, entries[start : start + CHUNK * workers])


def _unseen_classes(source: DataSource) -> Iterator[DataIssue]:
    names = source.summary.classes
    wanted = source.classes or names
    unseen = [name for label, name in enumerate(names) if name in wanted and not source.summary.labels[label]]
    if unseen and source.summary.labels:
        effect = 'cannot be learnt' if source.split == 'train' else 'are not evaluated, or count as zero'
        classes = f'{len(unseen)} of {source.summary.num_classes} classes'
        yield warning(
            'class that never occurs', f'{classes} never occur, so they {effect}: {shorten(unseen)}.', len(unseen)
        )


def print_report(report: FullReport) -> None:
    """Print the contents of the datasets, and their issues."""
    out = console()
    table = Table('data', 'path', 'rarest classes')
    for head in ('images', 'checked', 'classes seen'):
        table.add_column(head, justify='right')
    for summary in report.summaries:
        images = '-' if summary.images is None else f'{summary.images:,}'
        seen = f'{len(summary.seen)} of {summary.num_classes}'
        facts = ''.join(f'\n{what}: {count:,}' for what, count in summary.facts.items())
        counts = sorted((count, label) for label, count in summary.labels.items() if label < len(summary.classes))
        rarest = '\n'.join(f'{summary.classes[label]}: {count:,}' for count, label in counts[:RAREST_SHOWN])
        table.add_row(
            summary.split,
            escape(printable(summary.path + facts)),
            escape(printable(rarest)),
            images,
            f'{summary.checked:,}',
            seen,
        )
    nothing = 'no data on this machine of a known format: nothing was checked'
    out.print(table if report.summaries else nothing)
    if report.issues:
        table = Table('', 'data', 'issue', 'count', 'examples', show_lines=True)
        for group in report.issues:
            colour = 'red' if group.severity == ERROR else 'yellow'
            examples = escape(printable('\n'.join(group.examples[:EXAMPLES_SHOWN])))
            table.add_row(f'[{colour}]{group.severity}[/]', group.split, group.topic, f'{group.count:,}', examples)
        out.print(table)
    errors = len(report.errors)
    counts = [(errors, 'error'), (len(report.issues) - errors, 'warning')]
    topics = ', '.join(f'{count} kind{"s" * (count != 1)} of {what}' for count, what in counts)
    checked = sum(summary.checked for summary in report.summaries)
    out.print(f'{checked:,} images in {report.seconds:.0f} s: {topics}')


def write_report(report: FullReport, config: str, path: str | Path) -> None:
    """Write everything as JSON."""
    data = []
    for summary in report.summaries:
        row = {name: getattr(summary, name) for name in ('split', 'path', 'images', 'num_classes', 'checked')}
        classes = {name: summary.labels[label] for label, name in enumerate(summary.classes)}
        data.append({**row, 'classes': classes, **summary.facts})
    content = dict(
        config=config,
        seconds=round(report.seconds, 1),
        errors=len(report.errors),
        data=data,
        issues=[
            dict(split=one.split, severity=one.severity, kind=one.topic, count=one.count, examples=one.examples)
            for one in report.issues
        ],
    )
    write_json(path, content)

"""The check of one dataset: its structure, then its images one by one. It yields issues and never stops at one.

The caller decides what follows: the quick check raises the first error, the full check collects all issues.
"""

import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from mmengine.logging import print_log

from mmlape.datasets.checks.issues import ERROR, DataIssue
from mmlape.datasets.image_files import open_image, require_size
from mmlape.datasets.sources import DataSource
from mmlape.errors import DataError

MAX_NAMES = 8


@dataclass
class DataSummary:
    """The contents of a dataset.

    Attributes:
        images: None where they were not counted.
        seen: The labels that occur, in all annotations, or in the sample where ``sampled`` is set.
        labels: How often each label occurs: in instances, pixels, or images.
        facts: Further counts, by what they count.
    """

    split: str
    path: str
    images: int | None
    num_classes: int
    seen: set[int] = field(default_factory=set)
    sampled: bool = True
    classes: tuple[str, ...] = ()
    labels: Counter = field(default_factory=Counter)
    facts: Counter = field(default_factory=Counter)

    def __str__(self) -> str:
        images = '' if self.images is None else f'{self.images} images, '
        where = ' in the sample' if self.sampled else ''
        return f'{self.split} data {self.path}: {images}{len(self.seen)} of {self.num_classes} classes seen{where}'


@dataclass(frozen=True)
class ImageEntry:
    """An image to check.

    Attributes:
        path: The file.
        annotation: What the dataset has for it: a COCO record, the path of a label map, a label, or None.
    """

    path: str
    annotation: Any = None


@dataclass
class ImageFacts:
    """The issues of an image, and how often each label occurs in its label map."""

    issues: list[DataIssue] = field(default_factory=list)
    labels: Counter = field(default_factory=Counter)


class DatasetCheck(ABC):
    """The check of one dataset. A subclass checks one format.

    `check_structure` must be implemented; `check_annotation` is for formats with more than an image in an entry.
    Both may raise `DataError` where nothing further can be checked.

    Args:
        source: The dataset.
        smallest: Side of the model's patches.
        complete: Whether to read everything, or only parts of big files.

    Attributes:
        entries: The images that exist, for `check_image`; filled by `check_structure`.
        summary: The contents; filled by all methods.
    """

    def __init__(self, source: DataSource, smallest: int, complete: bool = False) -> None:
        self.source, self.smallest, self.complete = source, smallest, complete
        path, classes = source.ann_file or source.image_dir, source.classes or ()
        self.summary = DataSummary(source.split, path, None, len(classes), classes=classes)
        self.entries: Sequence[ImageEntry] = []

    @abstractmethod
    def check_structure(self) -> Iterator[DataIssue]:
        """Check paths, class names and annotations; fill ``entries`` and ``summary``."""

    def check_annotation(self, entry: ImageEntry, size: tuple[int, int], facts: ImageFacts) -> None:  # noqa: B027
        """Check an entry's annotation against its image of ``size`` (width, height); may run in a thread."""

    def structure_issues(self) -> Iterator[DataIssue]:
        """Run `check_structure`, with its `DataError` as a last issue."""
        try:
            yield from self.check_structure()
        except DataError as error:
            yield DataIssue(ERROR, 'cannot be read', str(error))

    def check_image(self, entry: ImageEntry) -> ImageFacts:
        """Decode an image and check it with its annotation; may run in a thread."""
        try:
            image = open_image(entry.path)
        except DataError as error:
            return ImageFacts([DataIssue(ERROR, 'unreadable image', str(error))])
        facts = ImageFacts()
        try:
            require_size(entry.path, *image.size, self.smallest)
        except DataError as error:
            facts.issues.append(DataIssue(ERROR, 'image smaller than a patch', str(error)))
        self.check_annotation(entry, image.size, facts)
        return facts

    def count(self, facts: ImageFacts) -> None:
        """Add the labels of an image to the summary."""
        self.summary.labels.update(facts.labels)
        self.summary.seen |= set(facts.labels)

    def unseen(self) -> list[str]:
        """Return the classes of the config that occur nowhere."""
        classes, labels = self.summary.classes, self.summary.labels
        wanted = self.source.classes or classes
        return [name for label, name in enumerate(classes) if name in wanted and not labels[label]]

    def require(self, path: str, what: str, exists: Callable[[str], bool] = os.path.isdir) -> None:
        """Raise DataError unless a path of the config is '' or exists."""
        if path and not exists(path):
            raise DataError(f'{what} {path} of the {self.source.split} data does not exist. {self.source.hint()}')

    def match_classes(self, found: Sequence[str], where: str) -> Iterator[DataIssue]:
        """Compare the class names of the data with the config's, which may be a selection in some formats."""
        source = self.source
        if source.classes is None or tuple(found) == source.classes:
            return
        extra = [name for name in found if name not in source.classes]
        missing = [name for name in source.classes if name not in found]
        selection = source.selects_classes and source.explicit and not missing
        if selection and [name for name in found if name in source.classes] == list(source.classes):
            print_log(f'{where}: not in the config, so not used: {shorten(extra)}', logger='current')
            return
        if extra or missing:
            parts = [f'only in the data: {shorten(extra)}'] * bool(extra)
            parts += [f'only in the config: {shorten(missing)}'] * bool(missing)
            difference = '; '.join(parts)
        else:
            difference = f'same names in another order: data {shorten(found)}, config {shorten(source.classes)}'
        root = source.root.rstrip('/') or source.image_dir
        yield DataIssue(
            ERROR,
            'class names differ',
            f'{where} do not match the classes of the config ({difference}). Pass --cfg-options data_root={root} to '
            f'take classes and num_classes from the data, or set metainfo=dict(classes=...) of the {source.split} '
            'dataset.',
        )


def files_below(root: str, suffix: str | tuple[str, ...], keep_suffix: bool = False) -> Iterator[str]:
    """Yield the paths of the files with a suffix below ``root``, relative to it, unsorted.

    Args:
        root: A directory; links are followed.
        suffix: One suffix or several.
        keep_suffix: Whether the paths keep it, and its upper-case spelling counts too.
    """
    for folder, _, names in os.walk(root, followlinks=True):
        for name in names:
            if name.endswith(suffix) or (keep_suffix and name.lower().endswith(suffix)):
                path = os.path.relpath(os.path.join(folder, name), root)
                yield path if keep_suffix else path[: -len(suffix)]


def spread(items: Sequence, count: int) -> list:
    """Return up to ``count`` items, evenly spread from the first to the last."""
    picks = np.unique(np.linspace(0, len(items) - 1, min(count, len(items))).round().astype(int))
    return [items[pick] for pick in picks]


def shorten(names: Iterable) -> str:
    """Join the first few names, and say how many more there are."""
    names = [str(name) for name in names]
    more = len(names) - MAX_NAMES
    return ', '.join(names[:MAX_NAMES]) + (f' and {more} more' if more > 0 else '')

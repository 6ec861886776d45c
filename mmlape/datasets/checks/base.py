"""A look at one data set: its structure, then its files one by one. What is wrong is a `Problem`, and nothing stops.

Who looks decides what follows: before a training the first error ends it, the full check collects everything.
"""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from mmengine.logging import print_log

from mmlape.datasets.image_files import open_image, require_size
from mmlape.datasets.sources import DataSource
from mmlape.errors import DataError

ERROR, WARNING = 'error', 'warning'
NAMES_SHOWN = 8


@dataclass(frozen=True)
class Problem:
    """Something wrong.

    Attributes:
        severity: `ERROR` for what ends or spoils a training, `WARNING` for what a person should know.
        kind: A few words that similar problems share.
        text: One sentence that names the file.
        count: How many things it is about.
    """

    severity: str
    kind: str
    text: str
    count: int = 1


@dataclass
class DataSummary:
    """What a look saw.

    Attributes:
        images: None where they were not counted.
        labels: How often each label was met: instances, pixels, or images.
        seen: The labels met, in all annotations, or in the sample where ``sampled`` is set.
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
class Item:
    """A picture to look at, and what is known about it: a COCO record, the path of a label map, or a label."""

    path: str
    about: Any = None


@dataclass
class FileFacts:
    """What a picture and its label map hold."""

    problems: list[Problem] = field(default_factory=list)
    labels: Counter = field(default_factory=Counter)


class Look:
    """A look at one data set.

    Args:
        source: The data set.
        smallest: Side of the model's patches.
        whole: Whether everything is read, however long it takes, or big files in part.
    """

    def __init__(self, source: DataSource, smallest: int, whole: bool = False) -> None:
        self.source, self.smallest, self.whole = source, smallest, whole
        self.summary = DataSummary(source.split, source.ann_file or source.image_dir, None, len(source.classes or ()))
        self.summary.classes = source.classes or ()
        self.items: Sequence[Item] = []

    def structure(self) -> Iterator[Problem]:
        """Paths, class names and annotations; fills `items` and `summary`. Stops where nothing more can be said."""
        try:
            yield from self._structure()
        except DataError as error:
            yield Problem(ERROR, 'cannot be read', str(error))

    def _structure(self) -> Iterator[Problem]:
        raise NotImplementedError

    def look(self, item: Item) -> FileFacts:
        """One picture with what belongs to it; may run in a thread."""
        facts = FileFacts()
        try:
            image = open_image(item.path)
        except DataError as error:
            facts.problems.append(Problem(ERROR, 'unreadable image', str(error)))
            return facts
        try:
            require_size(item.path, *image.size, self.smallest)
        except DataError as error:
            facts.problems.append(Problem(ERROR, 'image smaller than a patch', str(error)))
        self._look(item, image.size, facts)
        return facts

    def _look(self, item: Item, size: tuple[int, int], facts: FileFacts) -> None:
        """What else belongs to a picture of ``size`` (width, height)."""

    def take(self, facts: FileFacts) -> None:
        """Counts what a picture's label map holds."""
        self.summary.labels.update(facts.labels)
        self.summary.seen |= set(facts.labels)

    def unseen(self) -> list[str]:
        """Classes of the configuration that occur nowhere."""
        wanted = self.source.classes or self.summary.classes
        return [
            name
            for label, name in enumerate(self.summary.classes)
            if name in wanted and not self.summary.labels[label]
        ]

    def require(self, path: str, what: str, exists=os.path.isdir) -> None:
        """Raises DataError if a path of the configuration is not there."""
        if path and not exists(path):
            raise DataError(f'{what} {path} of the {self.source.split} data does not exist. {self.source.way_out()}')

    def match_classes(self, found: Sequence[str], where: str) -> Iterator[Problem]:
        """Class names of the data that differ from the configuration's, unless this picks a few of them."""
        source = self.source
        if source.classes is None or tuple(found) == source.classes:
            return
        extra = [name for name in found if name not in source.classes]
        missing = [name for name in source.classes if name not in found]
        picked = source.kind == 'coco' and source.explicit and not missing
        if picked and [name for name in found if name in source.classes] == list(source.classes):
            print_log(f'{where}: not in the config, so not used: {shorten(extra)}', logger='current')
            return
        if extra or missing:
            parts = [f'only in the data: {shorten(extra)}'] * bool(extra)
            parts += [f'only in the config: {shorten(missing)}'] * bool(missing)
            difference = '; '.join(parts)
        else:
            difference = f'same names in another order: data {shorten(found)}, config {shorten(source.classes)}'
        root = source.root.rstrip('/') or source.image_dir
        yield Problem(
            ERROR,
            'class names differ',
            f'{where} do not match the classes of the config ({difference}). Pass --cfg-options data_root={root} to '
            f'take classes and num_classes from the data, or set metainfo=dict(classes=...) of the {source.split} '
            'data set.',
        )


def files_below(root: str, suffix: str | tuple[str, ...], keep_suffix: bool = False) -> Iterator[str]:
    """Paths below `root`, relative to it, of the files with this ending; in no order."""
    for folder, _, names in os.walk(root, followlinks=True):
        for name in names:
            if name.endswith(suffix) or (keep_suffix and name.lower().endswith(suffix)):
                path = os.path.relpath(os.path.join(folder, name), root)
                yield path if keep_suffix else path[: -len(suffix)]


def spread(items: Sequence, count: int) -> list:
    """Up to ``count`` items, evenly spread from the first to the last."""
    picks = np.unique(np.linspace(0, len(items) - 1, min(count, len(items))).round().astype(int))
    return [items[pick] for pick in picks]


def shorten(names: Iterable) -> str:
    """The first few names, and how many more there are."""
    names = [str(name) for name in names]
    more = len(names) - NAMES_SHOWN
    return ', '.join(names[:NAMES_SHOWN]) + (f' and {more} more' if more > 0 else '')

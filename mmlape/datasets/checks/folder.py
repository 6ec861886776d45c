"""The checks of data in ImageNet's format, a folder for each class or a list of files and labels, and of Sun397."""

import os
from collections import Counter
from collections.abc import Iterator

from mmlape.datasets.checks.base import DatasetCheck, ImageEntry, files_below
from mmlape.datasets.checks.issues import ERROR, DataIssue
from mmlape.datasets.sources import read_lines
from mmlape.errors import DataError

QUICKLY_FOUND = 100_000
"""So many files of a list are looked up in about a second."""


class FolderCheck(DatasetCheck):
    """Checks class names against folders, and every line of a list; one image of each class unless ``complete``."""

    def check_structure(self) -> Iterator[DataIssue]:
        """Check paths, folders and the list."""
        source = self.source
        self.require(source.root or source.image_dir, 'Data root')
        self.require(source.image_dir, 'Image directory')
        self.summary.path = source.image_dir
        if source.ann_file:
            self.require(source.ann_file, 'Annotation file', os.path.isfile)
            yield from self._check_list()
            self.summary.images = len(self.entries)
        elif source.option('with_label') is False:
            names = sorted(self._images(source.image_dir))
            self.entries = [ImageEntry(os.path.join(source.image_dir, name)) for name in names]
        else:
            yield from self._check_folders()
        if not self.entries:
            raise DataError(f'{source.ann_file or source.image_dir} has no images. {source.hint()}')
        labels = Counter(entry.annotation for entry in self.entries if entry.annotation is not None)
        self.summary.seen = {label for label in labels if label < self.summary.num_classes}
        self.summary.sampled = False
        if self.complete:
            self.summary.labels.update(labels)

    def _images(self, folder: str) -> Iterator[str]:
        return files_below(folder, tuple(self.source.option('extensions') or ()), keep_suffix=True)

    def _check_folders(self) -> Iterator[DataIssue]:
        source = self.source
        names = source.class_folders()
        if not names:
            raise DataError(f'{source.image_dir} has no sub-folders, one for each class. {source.hint()}')
        if source.explicit or len(names) != len(source.classes or names):
            yield from self.match_classes(names, f'The sub-folders of {source.image_dir}')
        self.summary.num_classes = len(names)
        self.summary.classes = source.classes if len(source.classes or ()) == len(names) else tuple(names)
        for label, name in enumerate(names):
            folder = os.path.join(source.image_dir, name)
            found = self._images(folder)
            images = sorted(found) if self.complete else [image for image in [next(found, None)] if image]
            if not images:
                message = f'{folder} has no images, so this class cannot be learnt. {source.hint()}'
                yield DataIssue(ERROR, 'class without images', message)
            self.entries += [ImageEntry(os.path.join(folder, image), label) for image in images]
        if self.complete:
            self.summary.images = len(self.entries)

    def _check_list(self) -> Iterator[DataIssue]:
        """Check each line 'path label'; whether the files exist only if there are few, or if ``complete``."""
        source = self.source
        num_classes = len(source.classes or ())
        for number, line in enumerate(read_lines(source.ann_file), 1):
            name, _, label = line.rpartition(' ')
            if not name or not label.isdigit():
                message = f'{source.ann_file}, line {number}: "{line[:80]}" is not of the form "path label".'
                yield DataIssue(ERROR, 'invalid line', message)
                continue
            if source.classes and int(label) >= num_classes:
                message = (
                    f'{source.ann_file}, line {number}: label {label} is outside the {num_classes} classes, '
                    f'0 to {num_classes - 1} are allowed.'
                )
                yield DataIssue(ERROR, 'label outside the classes', message)
            self.entries.append(ImageEntry(os.path.join(source.image_dir, name), int(label)))
        yield from self._look_up()

    def _look_up(self) -> Iterator[DataIssue]:
        """Drop entries whose files do not exist; say how many they are."""
        listed = self.entries
        if self.complete or len(listed) <= QUICKLY_FOUND:
            self.entries = [entry for entry in listed if os.path.isfile(entry.path)]
        missing = len(listed) - len(self.entries)
        if missing:
            there = {entry.path for entry in self.entries}
            first = next(entry.path for entry in listed if entry.path not in there)
            message = (
                f'{missing} of the {len(listed)} images in {self.source.ann_file} do not exist, the first is {first}.'
            )
            yield DataIssue(ERROR, 'image missing', message, missing)


class SunCheck(FolderCheck):
    """Checks that the files of a partition are there, and that their folders are classes."""

    def _check_list(self) -> Iterator[DataIssue]:
        """Check each line '/a/abbey/sun_abc.jpg', whose middle is the class."""
        source = self.source
        labels = {name: label for label, name in enumerate(source.classes)}
        for number, line in enumerate(read_lines(source.ann_file), 1):
            label = labels.get('_'.join(line.split('/')[2:-1]))
            path = os.path.join(source.image_dir, line.lstrip('/'))
            if label is None:
                message = f'{source.ann_file}, line {number}: "{line[:80]}" is in the folder of no class.'
                yield DataIssue(ERROR, 'label outside the classes', message)
            else:
                self.entries.append(ImageEntry(path, label))
        yield from self._look_up()

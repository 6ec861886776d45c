"""Formats of classification: ImageNet's folders or lists, Sun397's, and CIFAR's files."""

import hashlib
import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

from mmlape.datasets.formats.base import (
    ERROR,
    QUICKLY_FOUND,
    DataIssue,
    DataSource,
    ImageEntry,
    files_below,
)
from mmlape.datasets.sources import read_lines
from mmlape.errors import DataError


class FolderSource(DataSource):
    """ImageNet's format: one folder of images for each class, or a list of images and labels."""

    instructions = (
        'ImageNet: one sub-folder of images for each class, below train/ and val/ of the data root'
    )
    mini_folder = 'digits'
    pack_transform = 'PackInputs'

    def __init__(self, split: str, cfg: dict, dataset_class: type) -> None:
        super().__init__(split, cfg, dataset_class)
        # of MMPretrain's ImageNet: a folder, and a list in meta/ if there is one
        name = cfg.get('split')
        if name:
            listed = os.path.join(self.root, 'meta', f'{name}.txt')
            self.ann_file = self.ann_file or (listed if os.path.isfile(listed) else '')
            if self.image_dir == os.path.join(self.root, ''):
                self.image_dir = os.path.join(self.root, name)

    def read_classes(self) -> tuple[str, ...] | None:
        """Read the names of the folders.

        The class's own names stay, as ImageNet's folders are codes.
        """
        if self.ann_file or not os.path.isdir(self.image_dir):
            return None
        names = tuple(self._class_folders())
        keeps = self.classes and not self.explicit and len(self.classes) == len(names)
        return self.classes if keeps else names

    def _class_folders(self) -> list[str]:
        """Return the sorted names of the folders, one for each class, in label order."""
        with os.scandir(self.image_dir) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir())

    def check_structure(self, complete: bool) -> Iterator[DataIssue]:
        """Check class names against folders, and every line of a list.

        One image of each class unless ``complete``.
        """
        self.require(self.root or self.image_dir, 'Data root')
        self.require(self.image_dir, 'Image directory')
        self.summary.path = self.image_dir
        if self.ann_file:
            self.require(self.ann_file, 'Annotation file', os.path.isfile)
            yield from self._check_list(complete)
            self.summary.images = len(self.entries)
        elif self.option('with_label') is False:
            names = sorted(self._images(self.image_dir))
            self.entries = [ImageEntry(os.path.join(self.image_dir, name)) for name in names]
        else:
            yield from self._check_folders(complete)
        if not self.entries:
            raise DataError(f'{self.ann_file or self.image_dir} has no images. {self.hint()}')
        labels = Counter(entry.annotation for entry in self.entries if entry.annotation is not None)
        self.summary.seen = {label for label in labels if label < self.summary.num_classes}
        self.summary.sampled = False
        if complete:
            self.summary.labels.update(labels)

    def _images(self, folder: str) -> Iterator[str]:
        return files_below(folder, tuple(self.option('extensions') or ()), keep_suffix=True)

    def _check_folders(self, complete: bool) -> Iterator[DataIssue]:
        names = self._class_folders()
        if not names:
            raise DataError(
                f'{self.image_dir} has no sub-folders, one for each class. {self.hint()}'
            )
        if self.explicit or len(names) != len(self.classes or names):
            yield from self.match_classes(names, f'The sub-folders of {self.image_dir}')
        self.summary.num_classes = len(names)
        self.summary.classes = (
            self.classes if len(self.classes or ()) == len(names) else tuple(names)
        )
        for label, name in enumerate(names):
            folder = os.path.join(self.image_dir, name)
            files = self._images(folder)
            images = (
                sorted(files) if complete else [image for image in [next(files, None)] if image]
            )
            if not images:
                message = f'{folder} has no images, so this class cannot be learnt. {self.hint()}'
                yield DataIssue(ERROR, 'class without images', message)
            self.entries += [ImageEntry(os.path.join(folder, image), label) for image in images]
        if complete:
            self.summary.images = len(self.entries)

    def _check_list(self, complete: bool) -> Iterator[DataIssue]:
        """Check each line 'path label' or 'path'.

        Whether the files exist only if they are few, or if ``complete``.
        """
        num_classes, labelled = len(self.classes or ()), self.option('with_label') is not False
        for number, line in enumerate(read_lines(self.ann_file), 1):
            if not labelled:
                self.entries.append(ImageEntry(os.path.join(self.image_dir, line)))
                continue
            name, _, label = line.rpartition(' ')
            if not name or not label.isdigit():
                message = f'{self.ann_file}, line {number}: "{line[:80]}" is not of the form "path label".'
                yield DataIssue(ERROR, 'invalid line', message)
                continue
            if self.classes and int(label) >= num_classes:
                message = (
                    f'{self.ann_file}, line {number}: label {label} is outside the {num_classes} '
                    f'classes, 0 to {num_classes - 1} are allowed.'
                )
                yield DataIssue(ERROR, 'label outside the classes', message)
            self.entries.append(ImageEntry(os.path.join(self.image_dir, name), int(label)))
        yield from self._look_up(complete)

    def _look_up(self, complete: bool) -> Iterator[DataIssue]:
        """Drop entries whose files do not exist; say how many they are."""
        listed = self.entries
        if complete or len(listed) <= QUICKLY_FOUND:
            self.entries = [entry for entry in listed if os.path.isfile(entry.path)]
        missing = len(listed) - len(self.entries)
        if missing:
            there = {entry.path for entry in self.entries}
            first = next(entry.path for entry in listed if entry.path not in there)
            message = f'{missing} of the {len(listed)} images in {self.ann_file} do not exist, the first is {first}.'
            yield DataIssue(ERROR, 'image missing', message, missing)


class SunSource(FolderSource):
    """Sun397's: images in folders of their classes below one for each letter, and lists of ten partitions."""

    instructions = (
        'Sun397: unpack SUN397.tar.gz and Partitions.zip of '
        'https://vision.princeton.edu/projects/2010/SUN so that the data root holds SUN397/ '
        '(a/abbey/*.jpg, ...) and Partitions/Training_01.txt, Testing_01.txt'
    )
    mini_folder = ''

    def __init__(self, split: str, cfg: dict, dataset_class: type) -> None:
        DataSource.__init__(self, split, cfg, dataset_class)
        part = 'Training' if self.option('split') == 'train' else 'Testing'
        self.ann_file = os.path.join(self.root, 'Partitions', f'{part}_01.txt')
        self.image_dir = os.path.join(self.root, 'SUN397')

    def read_classes(self) -> None:
        """Return None: the classes are the dataset class's own."""

    def _check_list(self, complete: bool) -> Iterator[DataIssue]:
        """Check each line '/a/abbey/sun_abc.jpg', whose middle is the class."""
        labels = {name: label for label, name in enumerate(self.classes)}
        for number, line in enumerate(read_lines(self.ann_file), 1):
            label = labels.get('_'.join(line.split('/')[2:-1]))
            path = os.path.join(self.image_dir, line.lstrip('/'))
            if label is None:
                message = (
                    f'{self.ann_file}, line {number}: "{line[:80]}" is in the folder of no class.'
                )
                yield DataIssue(ERROR, 'label outside the classes', message)
            else:
                self.entries.append(ImageEntry(path, label))
        yield from self._look_up(complete)


class CifarSource(DataSource):
    """CIFAR's files, packed for Python, whose checksums are known.

    With ``download=True``, MMPretrain fetches them.
    """

    pack_transform = 'PackInputs'

    def __init__(self, split: str, cfg: dict, dataset_class: type[Any]) -> None:
        super().__init__(split, cfg, dataset_class)
        self.summary.path = self.image_dir = os.path.join(self.root, dataset_class.base_folder)
        self.instructions = (
            f'{dataset_class.__name__}: unpack {dataset_class.url} there, so that '
            f'{self.root.rstrip("/")} holds {dataset_class.base_folder}/'
        )

    def check_structure(self, complete: bool) -> Iterator[DataIssue]:
        """Compare the checksums of all files; MMPretrain wants those of both splits."""
        cls = self.dataset_class
        files = [*cls.train_list, *cls.test_list, (cls.meta['filename'], cls.meta['md5'])]
        for name, published in [] if self.option('download') else files:
            path = os.path.join(self.image_dir, name)
            if not os.path.isfile(path):
                raise DataError(f'{path} does not exist. {self.hint()}')
            with open(path, 'rb') as file:
                md5 = hashlib.md5(file.read(), usedforsecurity=False).hexdigest()
            if md5 != published:
                raise DataError(
                    f'{path} ({os.path.getsize(path):,} bytes) is truncated or another file: its '
                    f'MD5 sum is {md5}, that of the published one {published}. {self.hint()}'
                )
        self.summary.seen, self.summary.sampled = set(range(self.summary.num_classes)), False
        yield from ()

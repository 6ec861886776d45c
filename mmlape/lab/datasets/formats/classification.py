"""Formats of classification: ImageNet's folders or lists, Sun397's, and CIFAR's files."""

import itertools
import os
import shlex
from collections import Counter
from collections.abc import Iterator
from typing import Any

from mmlape.errors import DataError
from mmlape.lab.datasets.folders import files_below, files_in, is_hidden, is_image, read_lines, read_listed
from mmlape.lab.datasets.formats.base import QUICKLY_FOUND, DataIssue, DataSource, ImageEntry, error, shorten, warning


class FolderSource(DataSource):
    """ImageNet's format: one folder of images for each class, or a list of images and labels."""

    instructions = 'ImageNet: one sub-folder of images for each class, below train/ and val/ of the data root'
    mini_folder = 'digits'
    absent_class = 'A class without images in a split has an empty folder there.'
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
            names = sorted(entry.name for entry in entries if entry.is_dir())
        for name in names:
            if is_hidden(name):
                folder = os.path.join(self.image_dir, name)
                raise DataError(
                    f'{folder} is no class, but MMPretrain takes each folder for one: remove it by '
                    f'"rm -r {shlex.quote(folder)}".'
                )
        return names

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
            names, others = self._images(self.image_dir)
            yield from self._left_out(others)
            self.entries = [ImageEntry(os.path.join(self.image_dir, name)) for name in names]
        else:
            yield from self._check_folders(complete)
        if not self.entries:
            raise DataError(f'{self.ann_file or self.image_dir} has no images. {self.hint()}')
        labels = Counter(entry.annotation for entry in self.entries if entry.annotation is not None)
        known = self.summary.num_classes
        self.summary.seen = {label for label in labels if label < known or not known}
        self.summary.sampled = False
        if complete:
            self.summary.labels.update(labels)

    def _images(self, folder: str, most: int | None = None) -> tuple[list[str], list[str]]:
        """Return the images below a folder, in order, and those whose suffix the dataset does not take.

        Of the first ``most`` files only.
        """
        extensions = tuple(extension.lower() for extension in self.option('extensions') or ())
        files = sorted(itertools.islice(files_below(folder), most))
        taken = [file for file in files if file.lower().endswith(extensions)]
        return taken, [file for file in files if is_image(file) and not file.lower().endswith(extensions)]

    def _left_out(self, others: list[str]) -> Iterator[DataIssue]:
        """Yield an error about images whose suffix the dataset does not take."""
        if others:
            suffixes = sorted({os.path.splitext(other)[1] for other in others})
            yield error(
                'image of another suffix',
                f'{len(others)} images in {self.image_dir} would be left out, as extensions of the '
                f'{self.split} dataset has no {", ".join(suffixes)}: {shorten(others)}. Add it '
                'there, or write them as PNG.',
                len(others),
            )

    def _check_folders(self, complete: bool) -> Iterator[DataIssue]:
        names = self._class_folders()
        if not names:
            raise DataError(f'{self.image_dir} has no sub-folders, one for each class. {self.hint()}')
        if self.explicit or len(names) != len(self.classes or names):
            yield from self.match_classes(names, f'The sub-folders of {self.image_dir}')
        self.summary.num_classes = len(names)
        self.summary.classes = self.classes if len(self.classes or ()) == len(names) else tuple(names)
        most = None if complete else max(QUICKLY_FOUND // len(names), 1)
        left_out = []
        for label, name in enumerate(names):
            folder = os.path.join(self.image_dir, name)
            images, others = self._images(folder, most)
            left_out += [os.path.join(name, other) for other in others]
            if not images and not others:
                issue, effect = (error, 'cannot be learnt') if self.split == 'train' else (warning, 'is not evaluated')
                yield issue('class without images', f'{folder} has no images, so this class {effect}. {self.hint()}')
            images = images if complete else images[:1]
            self.entries += [ImageEntry(os.path.join(folder, image), label) for image in images]
        yield from self._left_out(left_out)
        loose = sorted(filter(is_image, files_in(self.image_dir)))
        if loose:
            yield warning(
                'image in no folder',
                f'{len(loose)} images in {self.image_dir} are in no folder of a class, so they are '
                f'left out: {shorten(loose)}.',
                len(loose),
            )
        if complete:
            self.summary.images = len(self.entries)

    def _check_list(self, complete: bool) -> Iterator[DataIssue]:
        """Check each line 'path label' or 'path'.

        Whether the files exist only if they are few, or if ``complete``.
        """
        num_classes, labelled = len(self.classes or ()), self.option('with_label') is not False
        for number, line in enumerate(read_listed(self.ann_file), 1):
            if not labelled:
                self.entries.append(ImageEntry(os.path.join(self.image_dir, line)))
                continue
            name, _, label = line.strip().rpartition(' ')
            if not name or not label.isdecimal():
                tabs = ', with a space between them and no tab' * ('\t' in line)
                yield error(
                    'invalid line',
                    f'{self.ann_file}, line {number}: {line[:80]!r} is not of the form "path label"{tabs}.',
                )
                continue
            if self.classes and int(label) >= num_classes:
                yield error(
                    'label outside the classes',
                    f'{self.ann_file}, line {number}: label {label} is outside the {num_classes} '
                    f'classes, 0 to {num_classes - 1} are allowed.',
                )
            self.entries.append(ImageEntry(os.path.join(self.image_dir, name), int(label)))
        yield from self._look_up(complete)

    def _look_up(self, complete: bool) -> Iterator[DataIssue]:
        """Drop entries whose files do not exist; say how many they are."""
        listed = self.entries
        if complete or len(listed) <= QUICKLY_FOUND:
            self.entries = [entry for entry in listed if os.path.isfile(entry.path)]
        there = set(self.entries)
        yield from self.missing_images(
            [entry.path for entry in listed if entry not in there],
            len(listed),
            f'Correct the list, or data_prefix of the {self.split} dataset.',
        )


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
                yield error(
                    'label outside the classes',
                    f'{self.ann_file}, line {number}: "{line[:80]}" is in the folder of no class.',
                )
            else:
                self.entries.append(ImageEntry(path, label))
        yield from self._look_up(complete)


class CifarSource(DataSource):
    """CIFAR's files, packed for Python. With ``download=True``, MMPretrain fetches them."""

    pack_transform = 'PackInputs'

    def __init__(self, split: str, cfg: dict, dataset_class: type[Any]) -> None:
        super().__init__(split, cfg, dataset_class)
        self.summary.path = self.image_dir = os.path.join(self.root, dataset_class.base_folder)
        self.instructions = (
            f'{dataset_class.__name__}: unpack {dataset_class.url} there, so that '
            f'{self.root.rstrip("/")} holds {dataset_class.base_folder}/'
        )

    def check_structure(self, complete: bool) -> Iterator[DataIssue]:
        """Check that the folder is there: MMPretrain compares the checksums of its files, of both splits."""
        if not self.option('download'):
            self.require(self.image_dir, 'Folder')
        self.summary.seen, self.summary.sampled = set(range(self.summary.num_classes)), False
        yield from ()

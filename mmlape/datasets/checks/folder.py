"""The look at data in ImageNet's layout, a folder a class, or with a list of files and labels."""

import os
from collections.abc import Iterator

from mmlape.datasets.checks.base import ERROR, Item, Look, Problem, files_below
from mmlape.datasets.sources import read_lines, subfolders
from mmlape.errors import DataError


class FolderLook(Look):
    """Class names against folders, every line of a list; without ``whole``, one picture a class."""

    def _structure(self) -> Iterator[Problem]:
        source = self.source
        self.require(source.root or source.image_dir, 'Data root')
        self.require(source.image_dir, 'Image directory')
        self.summary.path = source.image_dir
        if source.ann_file:
            self.require(source.ann_file, 'Annotation file', os.path.isfile)
            yield from self._listed()
            self.summary.images = len(self.items)
        elif source.option('with_label') is False:
            names = sorted(self._images(source.image_dir))
            self.items = [Item(os.path.join(source.image_dir, name)) for name in names]
        else:
            yield from self._foldered()
        if not self.items:
            raise DataError(f'{source.image_dir} has no images. {source.way_out()}')
        labels = {item.about for item in self.items if item.about is not None}
        self.summary.seen = {label for label in labels if label < self.summary.num_classes}
        self.summary.sampled = False
        for item in self.items if self.whole else ():
            if item.about is not None:
                self.summary.labels[item.about] += 1

    def _images(self, folder: str) -> Iterator[str]:
        return files_below(folder, tuple(self.source.option('extensions') or ()), keep_suffix=True)

    def _foldered(self) -> Iterator[Problem]:
        source = self.source
        names = subfolders(source.image_dir)
        if not names:
            raise DataError(f'{source.image_dir} has no sub-folders, one for each class. {source.way_out()}')
        if source.explicit or len(names) != len(source.classes or names):
            yield from self.match_classes(names, f'The sub-folders of {source.image_dir}')
        self.summary.num_classes = len(names)
        self.summary.classes = source.classes if len(source.classes or ()) == len(names) else tuple(names)
        items = []
        for label, name in enumerate(names):
            folder = os.path.join(source.image_dir, name)
            found = self._images(folder)
            images = sorted(found) if self.whole else [image for image in [next(found, None)] if image]
            if not images:
                text = f'{folder} has no images, so this class cannot be learnt. {source.way_out()}'
                yield Problem(ERROR, 'class without images', text)
            items += [Item(os.path.join(folder, image), label) for image in images]
        self.items = items
        if self.whole:
            self.summary.images = len(items)

    def _listed(self) -> Iterator[Problem]:
        """The images of a list with lines 'path label'; every label is checked."""
        source, items = self.source, []
        num_classes = len(source.classes or ())
        for number, line in enumerate(read_lines(source.ann_file), 1):
            name, _, label = line.rpartition(' ')
            if not name or not label.isdigit():
                text = f'{source.ann_file}, line {number}: "{line[:80]}" is not of the form "path label".'
                yield Problem(ERROR, 'broken line', text)
                continue
            if source.classes and int(label) >= num_classes:
                text = (
                    f'{source.ann_file}, line {number}: label {label} is outside the {num_classes} classes, '
                    f'0 to {num_classes - 1} are allowed.'
                )
                yield Problem(ERROR, 'label outside the classes', text)
            items.append(Item(os.path.join(source.image_dir, name), int(label)))
        self.items = items

"""A folder for each class, as mmpretrain's CustomDataset reads it."""

import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from mmlape.errors import DataError
from mmlape.new.found_data import CLASSES, Found, Sample
from mmlape.new.listing import PART, Listing, split_named

OF_OTHERS = re.compile(f'{PART}|ground_?truth', re.I)
"""Names of folders that are parts of other forms, not classes."""


@dataclass
class ClassFolders(Found):
    """Images below a folder of their class's name: an annotation is the name."""

    too_few: ClassVar[str] = ''
    splits_by_folder: ClassVar[bool] = False  # a class may have the name of a split

    def summarise(self) -> None:
        """Count the images of each class."""
        every = [sample for samples in self.of_split.values() for sample in samples]
        self.classes = tuple(sorted({sample.annotation for sample in every}))
        self.counts = Counter(sample.annotation for sample in self.of_split['train'])

    def labels(self, sample: Sample) -> set[str]:
        """Return the class of an image."""
        return {sample.annotation}

    def groups(self) -> list[list[Sample]]:
        """Return the samples of each class, so that both parts have it."""
        of_class = defaultdict(list)
        for sample in self.of_split['train']:
            of_class[sample.annotation].append(sample)
        return list(of_class.values())

    def prepare(self, folder: Path) -> dict[str, dict[str, Any]]:
        """Write the lists of the splits."""
        datasets = {}
        for split, samples in self.of_split.items():
            file = folder / f'{split}.txt'
            rows = [f'{sample.image} {self.classes.index(sample.annotation)}\n' for sample in samples]
            file.write_text(''.join(rows), encoding='utf-8')
            shared = dict(type='CustomDataset', metainfo=dict(classes=CLASSES))
            datasets[split] = dict(shared, data_prefix=str(self.listing.root), ann_file=str(file))
        return datasets


def recognise(listing: Listing) -> ClassFolders:
    """Return the images by the folders of their classes; none if they lie otherwise.

    A level of folders is that of the splits if all its names are splits, above the classes or below them.

    Raises:
        DataError: There is one class only, or some of the images are in no class's folder.
    """
    data = ClassFolders('classes', 'class folders', listing)
    paths = [image.split('/')[:-1] for image in listing.images]
    loose = [image for image, path in zip(listing.images, paths) if not path]
    if 0 < len(loose) < len(paths):
        raise DataError(
            f'{listing.root} has images in folders, and {len(loose)} beside these, such as {loose[0]}: '
            'move each into the folder of its class, or out of the data'
        )
    depth, level, of_split = min(map(len, paths)), 0, None
    while level < depth - 1 and (
        len(level_names := {path[level] for path in paths}) == 1 or all(map(split_named, level_names))
    ):
        if all(map(split_named, level_names)):
            of_split = level
        level += 1
    if level >= depth:
        return data
    names = sorted({path[level] for path in paths})
    if of_split is None and level + 1 < depth and all(split_named(path[level + 1]) for path in paths):
        of_split = level + 1
    splits = [name for name in names if split_named(name)]
    if splits == names:  # without classes
        return data
    if of_split is None and splits and (len(splits) > 1 or depth != max(map(len, paths))):
        others = ' and '.join([name for name in names if name not in splits][:4])
        raise DataError(
            f'{listing.root} has images in {" and ".join(splits)}, and others in {others}: move those below '
            f'{" and ".join(splits)}, or out of the data'
        )
    of_others = [name for name in names if OF_OTHERS.fullmatch(name)]
    if of_others == names and len(names) == 1:
        return data
    if of_others:
        raise DataError(
            f'{listing.root} has images in {" and ".join(names[:4])}, but no image with a label map '
            'of the same name: name both alike; suffixes may differ'
        )
    if len(names) < 2:
        raise DataError(
            f'{listing.root} has images of one class only, {names[0]!r}: a classifier needs two '
            'folders of images at least'
        )
    for image, path in zip(listing.images, paths):
        data.add(image, path[level])
        if of_split is not None:
            data.splits[image] = split_named(path[of_split]), f'the folder {path[of_split]}'
    return data

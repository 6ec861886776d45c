"""A folder for each class, as mmpretrain's CustomDataset reads it."""

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from mmlape.errors import DataError
from mmlape.new.found import CLASSES, Found, divide, image_sizes
from mmlape.new.listing import Listing, split_of, train_and_val

PARTS = re.compile(r'(images?|imgs?|labels?|masks?|annotations?|gt|ground_?truth)', re.I)
"""Names of folders that are parts of other forms, not classes."""


@dataclass
class ClassFolders(Found):
    """Images below a folder of their class's name, by split.

    Args:
        root: The folder that all paths begin with.
        parts: Of each split, its folder below the root, and the images below that, by class.
    """

    root: Path = Path()
    parts: dict[str, Any] = field(default_factory=dict)

    def images(self) -> dict[str, int]:
        """Count the images of each split."""
        return {split: sum(map(len, part[1].values())) for split, part in self.parts.items() if part}

    @property
    def image_folder(self) -> Path:
        """The folder of the images for training."""
        return self.root / self.parts['train'][0]

    def prepare(self, folder: Path, seed: int) -> dict[str, dict[str, Any]]:
        """Write the lists of a split, unless the data have one."""
        shared = dict(type='CustomDataset', metainfo=dict(classes=CLASSES))
        prefix, train = self.parts['train']
        if self.parts['val']:
            return {split: dict(shared, data_prefix=str(self.root / part[0])) for split, part in self.parts.items()}
        # each class is divided, so that both splits have it
        rows: dict[str, list[str]] = dict(train=[], val=[])
        for label, name in enumerate(self.classes):
            for split, chosen in zip(rows, divide(train[name], seed)):
                rows[split] += [f'{name}/{file} {label}' for file in chosen]
        found = {}
        for split, lines in rows.items():
            file = folder / f'{split}.txt'
            file.write_text('\n'.join(lines) + '\n', encoding='utf-8')
            found[split] = dict(shared, data_prefix=str(self.root / prefix), ann_file=str(file))
        return found


def recognise(listing: Listing) -> ClassFolders | None:
    """Return the folders of classes, or None if images lie otherwise.

    Raises:
        DataError: There is one class only, training and validation have different ones, or some of
            the images are in no class's folder.
    """
    parts: dict[str | None, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    prefixes: dict[str | None, str] = {}
    loose = [file for file in listing.images if '/' not in file]
    if 0 < len(loose) < len(listing.images):
        raise DataError(
            f'{listing.root} has images in folders, and {len(loose)} beside these, such as {loose[0]}: '
            'move each into the folder of its class, or out of the data'
        )
    if loose:
        return None
    for file in listing.images:
        folders = PurePosixPath(file).parts[:-1]
        split = split_of(folders[0]) if len(folders) > 1 else None
        prefix, inner = (folders[0], folders[1:]) if split else ('', folders)
        if prefixes.setdefault(split, prefix) != prefix:
            return None
        name = inner[0]
        parts[split][name].append('/'.join([*inner[1:], PurePosixPath(file).name]))
    if not parts:
        return None
    if None in parts and len(parts) > 1:
        splits = ' and '.join(sorted(prefixes[split] for split in parts if split))
        others = ' and '.join(sorted(parts[None])[:4])
        raise DataError(
            f'{listing.root} has images in {splits}, and others in {others}: move those below '
            f'{splits}, or out of the data'
        )
    known = train_and_val({split: (prefixes[split], dict(found)) for split, found in parts.items()})
    classes = tuple(sorted(known['train'][1]))
    named = [name for name in classes if PARTS.fullmatch(name)]
    if named:
        raise DataError(
            f'{listing.root} has images in {" and ".join(classes[:4])}, but no image with a label map '
            'of the same name: name both alike; suffixes may differ'
        )
    if len(classes) < 2:
        raise DataError(
            f'{listing.root} has images of one class only, {classes[0]!r}: a classifier needs two '
            'folders of images at least'
        )
    if known['val'] and set(known['val'][1]) - set(classes):
        absent = sorted(set(known['val'][1]) - set(classes))
        raise DataError(
            f'{listing.root}: the classes {", ".join(absent[:6])} have images for validation, and none for training'
        )
    prefix, train = known['train']
    paths = [listing.root / prefix / name / file for name in classes for file in train[name]]
    return ClassFolders(
        'classes',
        'class folders',
        classes,
        Counter({name: len(train[name]) for name in classes}),
        image_sizes(paths),
        root=listing.root,
        parts=known,
    )

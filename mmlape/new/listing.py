"""The files below a folder, and what their paths say of training and validation."""

import os
import re
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

from mmlape.errors import DataError
from mmlape.lab.datasets.folders import files_below, is_image

SPLITS = {'train': 'train', 'training': 'train', 'val': 'val', 'valid': 'val', 'validation': 'val'}
"""The words of a path that say what its images are for; 'test' stands for validation without any of those."""
MOST = 1_000_000
"""Files of a folder that are listed."""


@dataclass(frozen=True)
class Listing:
    """The files below a folder, without hidden ones, as paths from it with slashes."""

    root: Path
    files: tuple[str, ...]

    @cached_property
    def by_folder(self) -> dict[str, list[str]]:
        """The names of the files in each folder, by its path from the root, '' for that."""
        found: dict[str, list[str]] = defaultdict(list)
        for file in self.files:
            folder, _, name = file.rpartition('/')
            found[folder].append(name)
        return dict(found)

    @cached_property
    def images(self) -> tuple[str, ...]:
        """The files that are images, by their names."""
        return tuple(file for file in self.files if is_image(file))

    def of_suffix(self, *suffixes: str) -> tuple[str, ...]:
        """Return the files whose names end so."""
        return tuple(file for file in self.files if file.lower().endswith(suffixes))

    def summary(self) -> str:
        """Say how many files of which suffix there are, the most frequent first."""
        counts: dict[str, int] = defaultdict(int)
        for file in self.files:
            counts[PurePosixPath(file).suffix.lower() or 'no suffix'] += 1
        shown = sorted(counts.items(), key=lambda item: -item[1])
        return ', '.join(f'{count} {suffix}' for suffix, count in shown[:6]) or 'no files'


def list_files(root: Path) -> Listing:
    """Return the files below a folder.

    Raises:
        DataError: There is no such folder, it cannot be listed, or it has more than ``MOST`` files.
    """
    if not root.is_dir():
        raise DataError(f'{root} does not exist below {os.getcwd()}: give the folder of your data')
    files = []
    for file in files_below(str(root)):
        files.append(file.replace(os.sep, '/'))
        if len(files) > MOST:
            raise DataError(f'{root} has more than {MOST:,} files: give a folder below it')
    return Listing(root, tuple(sorted(files)))


def split_of(path: str) -> str | None:
    """Return 'train', 'val' or 'test' if a word of a path says so, the last one that does; else None.

    Words are letters: those of 'instances_train2017.json' are 'instances' and 'train'.
    """
    for word in reversed(re.findall(r'[a-z]+', path.lower())):
        if word in SPLITS:
            return SPLITS[word]
        if word in ('test', 'testing'):
            return 'test'
    return None


def train_and_val(parts: dict) -> dict:
    """Return what is for training and validation of what was found, by split: 'test' only without 'val'.

    What no path assigns is for training.
    """
    train = parts.get('train', parts.get(None))
    val = parts.get('val', parts.get('test') if train is not None else None)
    if train is None:  # of a folder with a single split, whatever its name
        train, val = parts.get('val', parts.get('test')), None
    return dict(train=train, val=val)

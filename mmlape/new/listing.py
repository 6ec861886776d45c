"""The files below a folder: splits that their folders and lists say, files of one name, and what JSON files hold."""

import json
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from mmlape.errors import DataError
from mmlape.lab.datasets.folders import files_below, is_image, read_lines, read_names, read_text

SPLITS = {
    **dict.fromkeys(('train', 'training', 'trainval'), 'train'),
    **dict.fromkeys(('val', 'valid', 'validation'), 'val'),
    **dict.fromkeys(('test', 'testing'), 'test'),
}
PART = r'(?:images?|imgs?|photos?|labels?|masks?|annot|annotations?|obj|gt|data|set|split|json|xml)'
SPLIT = re.compile(rf'(?:{PART}[ _-]?)?({"|".join(SPLITS)})(?:[ _-]?{PART})?(?:[ _-]?\d+)?', re.I)
"""The complete name of a folder that is a split, such as 'train2017' or 'val_images'."""
NAMES = ('classes.txt', 'obj.names', 'labels.txt', 'class_names.txt')
"""Files that list classes in the order of their numbers."""


@dataclass(frozen=True)
class Listing:
    """The files below a folder, without hidden ones, as paths from it with slashes."""

    root: Path
    files: tuple[str, ...]

    @cached_property
    def images(self) -> tuple[str, ...]:
        """The files that are images, by their names."""
        return tuple(file for file in self.files if is_image(file))

    @cached_property
    def documents(self) -> dict[str, Any]:
        """What each JSON file holds; DataError for one that cannot be read."""
        return {file: _read_json(self.root / file) for file in self.of_suffix('.json')}

    def of_suffix(self, *suffixes: str) -> tuple[str, ...]:
        """Return the files whose names end so."""
        return tuple(file for file in self.files if file.lower().endswith(suffixes))

    def summary(self) -> str:
        """Say how many files of which suffix there are, the most frequent first."""
        counts = Counter(PurePosixPath(file).suffix.lower() or 'no suffix' for file in self.files)
        return ', '.join(f'{count} {suffix}' for suffix, count in counts.most_common(6)) or 'no files'

    def class_list(self) -> tuple[tuple[str, ...], str]:
        """Return the names of the classes that a file lists, and the file; none without one.

        Raises:
            DataError: Two files list different ones.
        """
        lists = {read_names(self.root / file): file for file in self.files if PurePosixPath(file).name in NAMES}
        if len(lists) > 1:
            raise DataError(f'{self.root}: {" and ".join(lists.values())} list different classes: remove one')
        return next(iter(lists.items()), ((), ''))


def list_files(root: Path) -> Listing:
    """Return the files below a folder.

    Raises:
        DataError: There is no such folder, or it cannot be listed.
    """
    if not root.is_dir():
        raise DataError(f'{root} does not exist below {os.getcwd()}: give the folder of your data')
    return Listing(root, tuple(sorted(file.replace(os.sep, '/') for file in files_below(str(root)))))


def _read_json(file: Path) -> Any:
    try:
        content = json.loads(read_text(file))
    except (ValueError, RecursionError) as error:
        raise DataError(f'{file}: no JSON ({error})') from error
    if isinstance(content, dict):
        content.pop('imageData', None)  # the image itself, in LabelMe's files
    return content


def names_images(text: str) -> bool:
    """Return whether a text has the name of an image in quotes or between tags."""
    return any(map(is_image, re.findall(r'[">]([^"<>]+\.\w+)["<]', text)))


def folder_and_stem(file: str) -> tuple[str, str]:
    """Return the folder of a path, and its name without the suffix."""
    path = PurePosixPath(file)
    return str(path.parent), path.stem


def split_named(folder: str) -> str | None:
    """Return 'train', 'val' or 'test' if the name of a folder is that of a split; else None."""
    match = SPLIT.fullmatch(folder)
    return SPLITS[match[1].lower()] if match else None


def split_of(file: str) -> str | None:
    """Return 'train', 'val' or 'test' if a folder of a path has the name of a split; else None.

    Raises:
        DataError: Two folders have names of different splits.
    """
    splits = {split for part in PurePosixPath(file).parts[:-1] if (split := split_named(part))}
    if len(splits) > 1:
        raise DataError(f'{file} is in folders of two splits, {" and ".join(sorted(splits))}: rename one of them')
    return next(iter(splits), None)


def match_images(
    files: Iterable[str], images: Iterable[str], key: Callable[[str], str] = lambda stem: stem
) -> dict[str, list[str]]:
    """Return the images of each annotation file: those of its stem, in one folder for all files of a folder.

    This is the folder that shares most of the path among those that share a stem and are of no other split.

    Args:
        files: The annotation files.
        images: The images.
        key: What of a stem both have in common.
    """
    of_images: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    of_files: dict[str, dict[str, str]] = defaultdict(dict)
    for image in images:
        folder, stem = folder_and_stem(image)
        of_images[folder][key(stem)].append(image)
    for file in files:
        folder, stem = folder_and_stem(file)
        of_files[folder][file] = key(stem)
    matches: dict[str, list[str]] = {}
    for folder, keys in of_files.items():
        shared = {other: len(stems.keys() & {*keys.values()}) for other, stems in of_images.items()}
        candidates = [
            other
            for other, count in shared.items()
            if count and len({split_of(f'{folder}/x'), split_of(f'{other}/x')} - {None}) < 2
        ]
        best = max(candidates, key=lambda other: (_nearness(folder, other), shared[other]), default=None)
        for file, stem in keys.items():
            matches[file] = [] if best is None else of_images[best].get(stem, [])
    return matches


def _nearness(first: str, second: str) -> tuple[bool, int]:
    return first == second, len(set(PurePosixPath(first).parts) & set(PurePosixPath(second).parts))


def listed_splits(listing: Listing, task_sets: str) -> dict[str, tuple[str, str]]:
    """Return the split of each image that a list names, and the list.

    Lists are ``train.txt``, ``val.txt`` and the like: of one folder, or of ``task_sets`` among Pascal VOC's ImageSets.

    Raises:
        DataError: There are several folders of lists, or a line names no image.
    """
    stems = {folder_and_stem(image) for image in listing.images}
    folders: dict[str, dict[str, str]] = defaultdict(dict)
    for file in listing.of_suffix('.txt'):
        folder, stem = folder_and_stem(file)
        if stem.lower() in SPLITS and (folder, stem) not in stems:
            folders[folder][stem.lower()] = file
    if len(folders) > 1:
        of_task = [name for name in folders if name.endswith(f'ImageSets/{task_sets}')]
        folders = {name: folders[name] for name in of_task} or folders
    if len(folders) > 1:
        raise DataError(f'{listing.root} has lists of splits in {" and ".join(folders)}: keep those of one folder')
    by_ending: dict[str, list[str]] = defaultdict(list)
    for image in listing.images:
        parts = image.split('/')
        for start in range(len(parts)):
            ending = '/'.join(parts[start:])
            by_ending[ending].append(image)
            by_ending[os.path.splitext(ending)[0]].append(image)
    splits: dict[str, tuple[str, str]] = {}
    for lists in folders.values():
        if 'train' in lists:
            lists.pop('trainval', None)  # both together
        for stem, file in lists.items():
            for number, line in enumerate(read_lines(listing.root / file), 1):
                name = line.removeprefix('./')
                images = by_ending.get(name) or by_ending.get(name.split()[0]) or by_ending.get(_below(listing, name))
                if not images:
                    raise DataError(f'{listing.root / file}, line {number}: {line!r} is no image of {listing.root}')
                for image in images:
                    add_split(splits, image, SPLITS[stem], file)
    return splits


def _below(listing: Listing, name: str) -> str:
    """Return the path of an image from the root, if its name has the root's path."""
    return os.path.relpath(name, listing.root.resolve()) if os.path.isabs(name) else name


def add_split(splits: dict[str, tuple[str, str]], image: str, split: str, source: str) -> None:
    """Add the split that a source gives an image; raise DataError if another one gives another."""
    first = splits.setdefault(image, (split, source))
    if first[0] != split:
        raise DataError(
            f'{image} is for {first[0]} by {first[1]}, and for {split} by {source}: correct one, or move it out'
        )

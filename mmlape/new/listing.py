"""The files below a folder: splits that their folders and lists say, files of one name, and what JSON files hold."""

import json
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from mmlape.errors import DataError
from mmlape.lab.datasets.folders import MARKS, files_below, is_image, read_lines, read_names, read_text

SPLITS = {
    **dict.fromkeys(('train', 'training', 'trainval'), 'train'),
    **dict.fromkeys(('val', 'valid', 'validation'), 'val'),
    **dict.fromkeys(('test', 'testing'), 'test'),
}
PART = r'(?:images?|imgs?|photos?|labels?|masks?|annot|annotations?|obj|gt|data|set|split|json|xml)'
SPLIT = re.compile(rf'(?:{PART}[ _-]?)?({"|".join(SPLITS)})(?:[ _-]?{PART})?(?:[ _-]?\d+)?', re.I)
"""The complete name of a folder that is a split, such as 'train2017' or 'val_images'."""
NAMES = ('classes.txt', 'obj.names', 'labels.txt', 'class_names.txt', '_darknet.labels')
"""Files that list classes in the order of their numbers."""
SEPARATORS = re.compile(r"""[<>"'`,;:=\t\r\n]""")
"""What stands around the values of CSV, JSON, XML and YAML."""


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

    @cached_property
    def split_lists(self) -> tuple[str, ...]:
        """The texts that list the images of a split, by their names: ``train.txt`` and the like."""
        lists = [file for file in self.of_suffix('.txt') if folder_and_stem(file)[1].lower() in SPLITS]
        named = {folder_and_stem(image) for image in self.images} if lists else ()
        return tuple(file for file in lists if folder_and_stem(file) not in named)

    @cached_property
    def _by_ending(self) -> dict[str, list[str]]:
        """The images by each ending of their paths, with and without suffix."""
        by_ending: dict[str, list[str]] = defaultdict(list)
        for image in self.images:
            parts = image.split('/')
            for start in range(len(parts)):
                ending = '/'.join(parts[start:])
                by_ending[ending].append(image)
                by_ending[os.path.splitext(ending)[0]].append(image)
        return by_ending

    def read_list(self, file: str) -> list[str]:
        """Return the images that the lines of a text name, each alone, or with a number or another image behind it.

        A name is the end of an image's path, or ends with the complete path from here or from the text's folder.

        Raises:
            DataError: A line names no image.
        """
        images = []
        for number, line in enumerate(read_lines(self.root / file), 1):
            first, *more = line.split()
            is_pair = len(more) == 1 and (is_image(more[0]) or more[0].removeprefix('-').isdecimal())
            found = self._named(line, file) or (self._named(first, file) if is_pair else [])
            if not found:
                raise DataError(f'{self.root / file}, line {number}: {line!r} is no image of {self.root}')
            images += found
        return images

    def _named(self, name: str, file: str) -> list[str]:
        parts = name.replace('\\', '/').lstrip('./').split('/')
        if found := self._by_ending.get('/'.join(parts)):
            return found
        endings = ['/'.join(parts[start:]) for start in range(1, len(parts))]
        folder = PurePosixPath(file).parent
        return [
            image
            for ending in endings
            for image in (ending, str(folder / ending))
            if image in self._by_ending.get(image, ())
        ][:1]

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


def find_unread(listing: Listing, read: Collection[str], left: Collection[str]) -> str:
    """Return what a file that no reader takes says of images without an annotation; '' if none says anything.

    It shares the name of one, names one, or most of them by stem alone. A list of nothing but images says nothing.

    Args:
        listing: The files.
        read: Those that a reader takes.
        left: The images without an annotation.
    """
    names = {PurePosixPath(image).name: image for image in left}
    stems = {folder_and_stem(image)[1]: image for image in left}
    every = {PurePosixPath(image).name for image in listing.images}
    for file in listing.files if left else ():
        if file in read or is_image(file):
            continue
        path = listing.root / file
        if image := stems.get(path.stem) or names.get(path.stem):
            return f'{path} has the name of the image {image}'
        text = _text(path)
        if every.issuperset(_name(line.strip()) for line in text.splitlines() if line.strip()):
            continue
        parts = ((part, *part.split()[:1], *part.split()[-1:]) for part in SEPARATORS.split(text))
        words = {word.strip(' -') for part in parts for word in part}
        if named := sorted(names.keys() & map(_name, words)):
            return f'{path} names the image {names[named[0]]}'
        if 2 * len(words & stems.keys()) > len(stems):
            return f'{path} names images, such as {stems[min(words & stems.keys())]}'
    return ''


def _text(path: Path) -> str:
    """Return what a text holds in UTF-8 or UTF-16, however broken; '' for another file."""
    content = path.read_bytes()
    encoding = MARKS.get(content[:3]) or MARKS.get(content[:2], 'utf-8')
    return '' if encoding != 'utf-16' and b'\0' in content else content.decode(encoding, 'replace')


def _name(path: str) -> str:
    """Return what follows the last slash of a path, of any system."""
    return path.replace('\\', '/').rpartition('/')[2]


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
    folders: dict[str, dict[str, str]] = defaultdict(dict)
    for file in listing.split_lists:
        folder, stem = folder_and_stem(file)
        folders[folder][stem.lower()] = file
    if len(folders) > 1:
        of_task = [name for name in folders if name.endswith(f'ImageSets/{task_sets}')]
        folders = {name: folders[name] for name in of_task} or folders
    if len(folders) > 1:
        raise DataError(f'{listing.root} has lists of splits in {" and ".join(folders)}: keep those of one folder')
    splits: dict[str, tuple[str, str]] = {}
    for lists in folders.values():
        if 'train' in lists:
            lists.pop('trainval', None)  # both together
        for stem, file in lists.items():
            for image in listing.read_list(file):
                add_split(splits, image, SPLITS[stem], file)
    return splits


def add_split(splits: dict[str, tuple[str, str]], image: str, split: str, source: str) -> None:
    """Add the split that a source gives an image; raise DataError if another one gives another."""
    first = splits.setdefault(image, (split, source))
    if first[0] != split:
        raise DataError(
            f'{image} is for {first[0]} by {first[1]}, and for {split} by {source}: correct one, or move it out'
        )

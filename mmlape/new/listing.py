"""The files below a folder: splits that their folders and lists say, files of one name, and what JSON files hold."""

import json
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
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
SEPARATORS = re.compile(r"""[][{}<>"'`,;=\t]|:(?!//)""")
"""What stands around the values of CSV, JSON, XML and YAML."""
NUMBER, BOX = re.compile(r'[+-]?\d*\.?\d+(e[+-]?\d+)?'), 4
"""One of the numbers of a box, and how many it has."""
DIGEST = re.compile('[0-9a-fA-F]{32,}')
"""Of a file, in a list of checksums."""


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


def find_unread(listing: Listing) -> str:
    """Return what a file that no reader takes says of the images of a folder; '' if none says anything.

    It shares the name of an image, names one in JSON or XML or beside the four numbers of a box, or names most. What
    lists images alone, or each with what its folder says already, says nothing; prose names a few images, too.
    """
    images: dict[str, list[str]] = defaultdict(list)
    for image in listing.images:
        for key in {PurePosixPath(image).name, PurePosixPath(image).stem}:
            images[key].append(image)
    records = {*listing.of_suffix('.json', '.xml')}
    for file in listing.files:
        if file in listing.split_lists or is_image(file):
            continue
        path, rows = listing.root / file, []
        if path.stem in images:
            return f'{path} has the name of the image {_nearest(file, images[path.stem])}'
        lines = [_words(line, images) for line in _text(path).splitlines()]
        if all(len([word for word, _ in line if word and not DIGEST.fullmatch(word)]) < 2 for line in lines):
            continue
        for line in lines:
            if keys := [key for _, key in line if key]:
                rows.append(([word for word, _ in line], keys[0]))
            named = next((key for word, key in line if key and is_image(word)), '')
            if named and sum(bool(NUMBER.fullmatch(word)) for word, _ in line) >= BOX:
                return f'{path} has numbers for the image {_nearest(file, images[named])}'
        about = {image for line in lines for _, key in line if key for image in images[key]}
        is_record = file in records and any(key and is_image(word) for line in lines for word, key in line)
        few = 0 if is_record else len(listing.images) // 2
        if len(about) > few and not _repeats(rows, images):
            return f'{path} names images, such as {_nearest(file, sorted(about))}'
    return ''


def _words(line: str, images: Collection[str]) -> list[tuple[str, str]]:
    """Return the words of a line, and the image's name or stem that each one is, or ''."""
    words = []
    for part in SEPARATORS.split(line):
        for word in [part.strip()] if _key(part, images) else part.split() or ['']:
            words.append((word, _key(word, images)))
    return words


def _key(word: str, images: Collection[str]) -> str:
    """Return the name of the image whose path, or the stem that a word is; '' for another one."""
    word = word.strip(' -*')
    key = word.replace('\\', '/').rpartition('/')[2] if is_image(word) else word
    return key if key in images else ''


def _repeats(rows: Sequence[tuple[list[str], str]], images: Mapping[str, list[str]]) -> bool:
    """Check whether a column of a table names the folder of the image in each row, whatever it calls that."""
    folders = []
    for words, key in rows:
        named = [image for image in images[key] if f'/{image}'.endswith(tuple(f'/{word}' for word in words if word))]
        of_row = {PurePosixPath(image).parent.name for image in named or images[key]}
        if len(of_row) != 1:
            return False
        folders += of_row
    columns = [column for step in (1, -1) for column in zip(*(words[::step] for words, _ in rows))]
    return any(len({*zip(column, folders)}) == len({*column}) == len({*folders}) > 1 for column in columns)


def _nearest(file: str, images: Iterable[str]) -> str:
    return max(images, key=lambda image: _nearness(folder_and_stem(file)[0], folder_and_stem(image)[0]))


def _text(path: Path) -> str:
    """Return what a text holds in UTF-8 or UTF-16, however broken; '' for another file."""
    with path.open('rb') as stream:
        start = stream.read(1 << 16)
        encoding = MARKS.get(start[:3]) or MARKS.get(start[:2], 'utf-8')
        binary = encoding != 'utf-16' and b'\0' in start  # an archive may be larger than the memory
        return '' if binary else (start + stream.read()).decode(encoding, 'replace')


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

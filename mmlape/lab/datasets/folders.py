"""The files of folders, as MMEngine lists them, the lines of texts, and the names of classes with their colours."""

import codecs
import colorsys
import os
import shlex
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from mmlape.errors import DataError

# of images that OpenCV reads, by which they are loaded
READ_SUFFIXES = (
    '.jpg', '.jpeg', '.jfif', '.png', '.bmp', '.tif', '.tiff', '.webp', '.gif', '.ppm', '.pgm', '.avif', '.jp2',
)  # fmt: skip
# of images, whether or not the backends read them
IMAGE_SUFFIXES = (*READ_SUFFIXES, '.heic', '.heif', '.tga', '.pcx', '.sgi', '.ico', '.dds')
# beside those that begin with a dot
PROGRAMS_FOLDERS = ('__MACOSX', '__pycache__', '@eaDir', '$RECYCLE.BIN', 'lost+found')
# by which Windows' programs begin a text
MARKS = {codecs.BOM_UTF8: 'utf-8-sig', codecs.BOM_UTF16_LE: 'utf-16', codecs.BOM_UTF16_BE: 'utf-16'}
GOLDEN_RATIO = 0.618034  # of the hue circle, between one class and the next


def files_below(root: str) -> Iterator[str]:
    """Yield the paths of the files below a folder, relative to it, unsorted, as MMEngine lists them.

    It leaves hidden files out, and follows links.

    Raises:
        DataError: An image is in a hidden folder, which MMEngine does not leave out; a link leads
            nowhere; a folder cannot be read.
    """
    try:
        yield from _files_below(root, root, hidden=False)
    except OSError as error:
        raise DataError(f'{error.filename} cannot be listed: {error.strerror}.') from error


def _files_below(root: str, folder: str, hidden: bool) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                yield from _files_below(root, entry.path, hidden or is_hidden(entry.name))
            elif entry.name.startswith('.') or not (is_image(entry.name) or entry.is_file()):
                continue
            elif not entry.is_file():
                raise DataError(
                    f'{entry.path} is a link to {os.readlink(entry.path)}, which does not exist: '
                    'restore that file, or remove the link.'
                )
            elif hidden and is_image(entry.name):
                raise DataError(
                    f'{entry.path} is in a hidden folder, whose images OpenMMLab takes, too: '
                    f'remove it by "rm -r {shlex.quote(folder)}".'
                )
            else:
                yield os.path.relpath(entry.path, root)


def files_in(folder: str) -> list[str]:
    """Return the names of the files that are directly in a folder and not hidden."""
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries if entry.is_file() and not entry.name.startswith('.')]


def is_hidden(name: str) -> bool:
    """Return whether a folder is one that programs make for themselves."""
    return name.startswith('.') or name in PROGRAMS_FOLDERS


def is_image(name: str) -> bool:
    """Return whether a file is an image, by its name."""
    return name.lower().endswith(IMAGE_SUFFIXES)


def other_form(name: str, names: Iterable[str]) -> str:
    """Return the remark that a file of almost this name exists; '' without any."""
    plain = unicodedata.normalize('NFC', name).casefold()
    for file in names:
        if unicodedata.normalize('NFC', file).casefold() == plain:
            return f' ({file!a} exists)'
    return ''


def read_text(path: str | Path) -> str:
    """Read a text in UTF-8, or in the encoding that its byte order mark names.

    Raises:
        DataError: It is in another encoding; the message names the line.
    """
    content = Path(path).read_bytes()
    encoding = next((name for mark, name in MARKS.items() if content.startswith(mark)), 'utf-8')
    try:
        text = content.decode(encoding)
        end = text.index('\0') if '\0' in text else None  # UTF-16 or UTF-32 without a mark
    except UnicodeDecodeError as error:
        text, end = '', error.start
    if end is not None:
        line = content.count(b'\n', 0, end) + 1
        raise DataError(f'{path}, line {line}: no text in {encoding.upper()}. Save the file in UTF-8.')
    return text.replace('\r\n', '\n').replace('\r', '\n')


def read_lines(path: str | Path) -> list[str]:
    """Return the lines of a text file that are not blank, stripped."""
    return [line.strip() for line in read_text(path).split('\n') if line.strip()]


def read_listed(path: str | Path) -> list[str]:
    """Return the lines of a list that an OpenMMLab package reads, too, which takes each of them as it is.

    Raises:
        DataError: A line is blank, or the encoding is not UTF-8 without a mark.
    """
    if Path(path).read_bytes().startswith(tuple(MARKS)):
        raise DataError(
            f'{path} begins with a byte order mark, which OpenMMLab takes for a part of the first '
            'line. Save the file in UTF-8 without one.'
        )
    text = read_text(path)
    lines = text.removesuffix('\n').split('\n') if text else []
    blank = next((number for number, line in enumerate(lines, 1) if not line.strip()), None)
    if blank is not None:
        raise DataError(f'{path}, line {blank} is blank, which OpenMMLab takes for a name: remove it.')
    return lines


def read_names(path: str | Path) -> tuple[str, ...]:
    """Read the names of classes, one a line, in the order of the labels.

    Raises:
        DataError: A line is blank, so that it is not known which label those after it have, or has
            a tab; or a name is there twice.
    """
    lines = [line.strip() for line in read_text(path).rstrip().split('\n')]
    for number, line in enumerate(lines, 1):
        if not line or '\t' in line:
            defect = 'has a tab' if line else 'is blank'
            raise DataError(
                f'{path}, line {number} {defect}: write the name of one class into each line, in the order of the ids.'
            )
    require_unique(lines, str(path))
    return tuple(lines)


def require_unique(names: Sequence[str], where: str) -> None:
    """Raise DataError if a class is named twice."""
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise DataError(f'{where} names the class {", ".join(twice[:6])} more than once.')


def class_palette(count: int) -> list[list[int]]:
    """Return RGB colours of ``count`` classes: hues a golden angle apart, in three brightnesses."""
    colours = []
    for index in range(count):
        value = (1.0, 0.75, 0.55)[index % 3]
        red, green, blue = colorsys.hsv_to_rgb(index * GOLDEN_RATIO % 1, 0.85, value)
        colours.append([round(255 * channel) for channel in (red, green, blue)])
    return colours


def spread(items: Sequence, count: int) -> list:
    """Return up to ``count`` items, evenly spread from the first to the last."""
    picks = np.unique(np.linspace(0, len(items) - 1, min(count, len(items))).round().astype(int))
    return [items[pick] for pick in picks]

"""The files of folders, as MMEngine lists them, and names that are almost alike."""

import os
import shlex
import unicodedata
from collections.abc import Iterable, Iterator

from mmlape.errors import DataError

# of images, whether or not the backends read them
IMAGE_SUFFIXES = (
    '.jpg', '.jpeg', '.jfif', '.png', '.bmp', '.tif', '.tiff', '.webp', '.gif', '.ppm', '.pgm',
    '.avif', '.heic', '.heif', '.jp2', '.tga', '.pcx', '.sgi', '.ico', '.dds',
)  # fmt: skip
# beside those that begin with a dot
PROGRAMS_FOLDERS = ('__MACOSX', '__pycache__', '@eaDir', '$RECYCLE.BIN', 'lost+found')


def files_below(root: str) -> Iterator[str]:
    """Yield the paths of the files below a folder, relative to it, unsorted, as MMEngine lists them.

    It leaves hidden files out, and follows links.

    Raises:
        DataError: An image is in a hidden folder, which MMEngine does not leave out; a link leads
            nowhere, or to a folder that it is in; a folder cannot be read.
    """
    try:
        yield from _files_below(root, root, hidden=False)
    except OSError as error:
        raise DataError(f'{error.filename} cannot be listed: {error.strerror}.') from error


def _files_below(root: str, folder: str, hidden: bool) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                if entry.is_symlink() and _is_inside(folder, entry.path):
                    raise DataError(f'{entry.path} is a link to a folder that it is in: remove it.')
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


def _is_inside(folder: str, link: str) -> bool:
    """Return whether a folder is the one that a link leads to, or below it."""
    return f'{os.path.realpath(folder)}/'.startswith(f'{os.path.realpath(link)}/')


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

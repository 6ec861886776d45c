"""Files inside tar archives, as WebDataset's shards.

Read in place, by names ``tar://SHARD.tar/MEMBER``.
"""

import contextlib
import json
import os
import re
import tarfile
from collections.abc import Iterator
from functools import cache
from glob import glob

from mmengine.fileio import register_backend
from mmengine.fileio.backends import BaseStorageBackend

from mmlape.errors import DataError
from mmlape.files import file_version

PREFIX = 'tar://'
IMAGES = ('jpg', 'jpeg', 'png', 'webp')


def members(shard: str) -> dict[str, tuple[int, int]]:
    """Return offset and size of each file in an uncompressed archive.

    Raises:
        DataError: It is missing, truncated, compressed or no archive.
    """
    try:
        return _members(shard, file_version(shard))
    except (OSError, tarfile.TarError) as error:
        raise DataError(
            f'Shard {shard} cannot be read ({error}). It must be an uncompressed .tar, complete.'
        ) from error


@cache
def _members(shard: str, version: tuple[int, int]) -> dict[str, tuple[int, int]]:
    """Read the list of a file's version once."""
    with tarfile.open(shard, 'r:') as archive:
        files = [member for member in archive if member.isfile()]
    return {file.name.removeprefix('./'): (file.offset_data, file.size) for file in files}


def files_of(pattern: str) -> list[str]:
    """Return the files of a pattern by ``*`` and ``?``.

    A name with such characters may be a file's own.
    """
    return [pattern] if os.path.isfile(pattern) else sorted(glob(pattern))


def split_name(name: str) -> tuple[str, str]:
    """Return shard and member of ``tar://SHARD.tar/MEMBER``; folders may end in .tar, too.

    Raises:
        FileNotFoundError: There is no such shard.
    """
    name = name.removeprefix(PREFIX)
    for end in re.finditer(r'\.tar(?=/)', name, re.IGNORECASE):
        if os.path.isfile(name[: end.end()]):
            return name[: end.end()], name[end.end() + 1 :]
    raise FileNotFoundError(f'no archive of {name}')


@register_backend('mmlape.tar', prefixes='tar')
class TarBackend(BaseStorageBackend):
    """MMEngine's access to files in archives; `LoadImageFromFile` reads images by it."""

    def get(self, filepath: str) -> bytes:
        """Return the bytes of ``tar://SHARD.tar/MEMBER``.

        Raise FileNotFoundError if there is no such member.
        """
        shard, name = split_name(filepath)
        try:
            offset, size = members(shard)[name]
        except KeyError as error:
            raise FileNotFoundError(f'no member {name} in {shard}') from error
        with open(shard, 'rb') as file:
            file.seek(offset)
            return file.read(size)

    def get_text(self, filepath: str, encoding: str = 'utf-8') -> str:
        """Return the text of a member."""
        return self.get(filepath).decode(encoding)


def read_shards(pattern: str) -> Iterator[tuple[str, str]]:
    """Yield name and caption of each image: ``KEY.jpg`` beside ``KEY.txt``, or ``KEY.json`` with a ``caption``.

    Args:
        pattern: A shard, or several by ``*`` and ``?``.

    Raises:
        DataError: A shard cannot be read, or an image has no caption; the message names it.
    """
    backend = TarBackend()
    for shard in files_of(pattern):
        for name in members(shard):
            folder, base = os.path.split(name)
            key, _, ending = base.partition('.')
            if ending.lower() not in IMAGES:
                continue
            image, stem = f'{PREFIX}{shard}/{name}', os.path.join(folder, key)
            text = None
            with contextlib.suppress(ValueError, AttributeError, RecursionError):  # no UTF-8, no JSON, no object
                if f'{stem}.txt' in members(shard):
                    text = backend.get_text(f'{PREFIX}{shard}/{stem}.txt')
                elif f'{stem}.json' in members(shard):
                    text = json.loads(backend.get_text(f'{PREFIX}{shard}/{stem}.json')).get('caption')
            if not isinstance(text, str) or not text.strip():
                raise DataError(f'Shard {shard}: {name} has no caption, a {key}.txt or a {key}.json with "caption".')
            yield image, text.strip()

"""What a dataset reads, as digests that the same files at another path have, too.

They are of a dataset that is built, so that they hold for every class of OpenMMLab: its samples name their images and
label maps by keys such as ``img_path``, and its attributes the annotation files and lists.
"""

import hashlib
import os
import pickle
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from mmlape.files import sha256
from mmlape.lab.datasets.folders import spread

SAMPLE = 1000
"""So many images and label maps are read, of a thousand or less all: files of one size may have been exchanged."""
TEXTS = ('.json', '.txt', '.xml')
"""Annotations that are a file for each image; all are read."""


@dataclass(kw_only=True)
class DataContent:
    """What a dataset reads; a digest is None where there is nothing of its kind."""

    samples: int
    annotations: str | None = None  # of the bytes of annotation files and lists
    # of images and label maps: their paths below the folder that they share, and their sizes
    names_and_sizes: str | None = None
    contents: str | None = None  # the bytes of a fixed sample of them, or the samples that a dataset holds itself


def contents_of(dataset: Any) -> list[DataContent]:
    """Return the contents of a dataset, or of those inside a wrapper; none of a class that is not MMEngine's."""
    complete = getattr(dataset, 'complete_content', None)
    if complete is not None:
        return [complete]
    inner = getattr(dataset, 'datasets', None) or [part for part in (getattr(dataset, 'dataset', None),) if part]
    if inner:
        return [content for part in inner for content in contents_of(part)]
    return [_content(dataset)] if hasattr(dataset, 'get_data_info') else []


def _content(dataset: Any) -> DataContent:
    # `data_list` is empty where MMEngine keeps the samples as bytes
    samples = dataset.data_list or map(dataset.get_data_info, range(len(dataset)))
    files, held = set(), hashlib.sha256()
    for sample in samples:
        paths = [value for key, value in sample.items() if key.endswith('path') and isinstance(value, str) and value]
        files.update(paths)
        if not paths:
            held.update(pickle.dumps(sample, protocol=4))
    named = {value for value in vars(dataset).values() if isinstance(value, str) and os.path.isfile(value)}
    texts = sorted(named) + sorted(file for file in files if file.endswith(TEXTS))
    images = sorted(file for file in files if not file.endswith(TEXTS))
    return DataContent(
        samples=len(dataset),
        annotations=_digest(map(digest_of, texts)) if texts else None,
        names_and_sizes=_digest(_names_and_sizes(images)) if images else None,
        contents=_digest(map(digest_of, spread(images, SAMPLE))) if images else held.hexdigest()[:16],
    )


def _names_and_sizes(files: list[str]) -> Iterable[bytes]:
    # of sorted paths the first and the last share the folders that all share
    start = os.path.commonpath([os.path.dirname(file) for file in (files[0], files[-1])])
    for file in files:
        try:
            size = os.stat(file).st_size
        except OSError:  # not on this machine's file system, or in an archive
            size = -1
        yield f'{file[len(start) :]} {size}\n'.encode(errors='surrogateescape')


def digest_of(file: str) -> bytes:
    """Return the digest of a file's content; nothing if it cannot be read."""
    try:
        return sha256(file).encode()
    except OSError:
        return b''


def _digest(parts: Iterable[bytes]) -> str:
    total = hashlib.sha256()
    for part in parts:
        total.update(part)
    return total.hexdigest()[:16]

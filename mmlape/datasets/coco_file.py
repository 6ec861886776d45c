"""COCO annotation files: a small one is read completely, of a big one only what a check needs."""

import json
import mmap
import os
from dataclasses import dataclass, field
from typing import Any

from mmlape.errors import DataError

FULL_READ_BYTES = 64 * 1024**2
"""COCO's train2017 has 450 MB: to read all of it costs 9 s and 3.3 GB of memory, a sample 0.2 s and 90 MB."""
SAMPLE_IMAGES = 64  # read from a big file
SAMPLE_ANNOTATIONS = 2000
WINDOW_BYTES = 4 * 1024**2  # read from a big file after a key
HINT = 'Download or unpack it again.'
_ID, _NUMBER = (int, str), (int, float)


@dataclass
class CocoFile:
    """The content of a file. Of a big one, `images` and `first_annotations` are samples and `annotations` is None."""

    path: str
    categories: list[dict]
    images: list[dict]
    annotations: list[dict] | None
    first_annotations: list[dict] = field(default_factory=list)

    @property
    def class_names(self) -> tuple[str, ...]:
        """Category names in the order of the file, which is MMDetection's label order."""
        return tuple(category['name'] for category in self.categories)


def read_coco(path: str, full_read_bytes: float = FULL_READ_BYTES) -> CocoFile:
    """Read an annotation file, completely if it is not larger than ``full_read_bytes``.

    Raises:
        DataError: It is empty, truncated, not JSON, or not of COCO's form.
    """
    if os.path.getsize(path) <= full_read_bytes:
        with open(path, 'rb') as file:
            content, first = _parse(path, file.read()), None
    else:
        content, first = _read_sample(path)
    if not isinstance(content, dict):
        raise DataError(f'Annotation file {path} is not of COCO form: a {type(content).__name__}, not an object.')
    annotations = content.get('annotations', []) if first is None else None  # a list of test images has none
    parts: tuple[tuple[str, Any, dict[str, Any]], ...] = (
        ('categories', content.get('categories'), dict(id=_ID, name=str)),
        ('images', content.get('images'), dict(id=_ID, file_name=str, height=_NUMBER, width=_NUMBER)),
        ('annotations', annotations if first is None else first, {}),
    )
    for key, entries, fields in parts:
        _check_entries(path, key, entries, fields)
    names = [category['name'] for category in content['categories']]
    duplicates = sorted({str(name) for name in names if names.count(name) > 1})
    if duplicates:
        raise DataError(f'Annotation file {path} has more than one category named {", ".join(duplicates)}.')
    return CocoFile(path, content['categories'], content['images'], annotations, first or [])


def _check_entries(path: str, key: str, entries: Any, fields: dict[str, type | tuple[type, ...]]) -> None:
    """Require a list of objects that have these fields, of these types, and hashable ids."""
    if not isinstance(entries, list):
        raise DataError(f'Annotation file {path} is not of COCO form: it has no list "{key}".')
    for entry in entries:
        defect = _find_defect(entry, fields)
        if defect is not None:
            raise DataError(f'Annotation file {path} has an entry {defect} in "{key}": {str(entry)[:120]}')


def _find_defect(entry: Any, fields: dict[str, type | tuple[type, ...]]) -> str | None:
    if not isinstance(entry, dict):
        return 'that is not an object'
    for name, kind in fields.items():
        if name not in entry:
            return f'without "{name}"'
        if not isinstance(entry[name], kind):
            return f'with an invalid "{name}"'
    invalid = [name for name in ('id', 'image_id', 'category_id') if isinstance(entry.get(name), list | dict)]
    return f'with an invalid "{invalid[0]}"' if invalid else None


def _parse(path: str, data: bytes) -> Any:
    if not data.strip():
        raise DataError(f'Annotation file {path} is empty. {HINT}')
    try:
        return json.loads(data)
    except ValueError as error:
        raise DataError(f'Annotation file {path} is not valid JSON ({error}). {HINT}') from error


def _read_sample(path: str) -> tuple[Any, list[dict] | None]:
    """Read the categories, first images and first annotations of a big file, found by their keys.

    If that fails, return the complete content and None.
    """
    with open(path, 'rb') as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if not data[-64:].rstrip().endswith(b'}'):
            raise DataError(f'Annotation file {path} is truncated: it does not end with "}}". {HINT}')
        try:
            categories = _decode_list(data, data.rfind(b'"categories"'), None)
            images = _decode_list(data, data.find(b'"images"'), SAMPLE_IMAGES)
            first = _decode_list(data, data.find(b'"annotations"'), SAMPLE_ANNOTATIONS, may_end=True)
        except ValueError:
            return _parse(path, data[:]), None
    return dict(categories=categories, images=images), first


def _decode_list(data: mmap.mmap, start: int, limit: int | None, may_end: bool = False) -> list:
    """Decode up to ``limit`` entries of the list that follows the key at ``start``; raise ValueError without one.

    With ``may_end``, the entries that end within the window are enough.
    """
    opening = data.find(b'[', start)
    if start < 0 or opening < 0:
        raise ValueError('no such list')
    text = data[opening + 1 : opening + WINDOW_BYTES].decode('utf-8', errors='ignore')
    decoder, entries, at = json.JSONDecoder(), [], 0
    while limit is None or len(entries) < limit:
        while text[at : at + 1] in (' ', '\n', '\r', '\t', ','):
            at += 1
        if text[at : at + 1] == ']':
            break
        try:
            entry, at = decoder.raw_decode(text, at)
        except ValueError:
            if may_end and entries:
                break
            raise
        entries.append(entry)
    return entries

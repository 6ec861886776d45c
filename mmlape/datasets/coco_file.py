"""Reads a COCO annotation file: the whole of a small one, of a big one only what a check needs."""

import json
import mmap
import os
from dataclasses import dataclass, field
from typing import Any

from mmlape.errors import DataError

WHOLE_BYTES = 64 * 1024**2  # COCO's train2017 has 450 MB, val2017 has 20 MB
SAMPLE_IMAGES = 64  # of a big file
SAMPLE_ANNOTATIONS = 2000
WINDOW_BYTES = 4 * 1024**2  # of a big file, from where a key stands
_ID, _NUMBER = (int, str), (int, float)


@dataclass
class CocoFile:
    """What was read. Of a big file `images` and `first_annotations` hold some, and `annotations` is None."""

    path: str
    categories: list[dict]
    images: list[dict]
    annotations: list[dict] | None
    first_annotations: list[dict] = field(default_factory=list)

    @property
    def class_names(self) -> tuple[str, ...]:
        """Category names in the order of the file, which is MMDetection's label order."""
        return tuple(category['name'] for category in self.categories)


def read_coco(path: str, whole_bytes: int = WHOLE_BYTES) -> CocoFile:
    """Reads `path`.

    Raises:
        DataError: It is empty, cut off, not JSON, or not of COCO's form.
    """
    with open(path, 'rb') as file:
        whole = os.path.getsize(path) <= whole_bytes
        content, first = (_parse(path, file.read()), None) if whole else _skim(path)
    if not isinstance(content, dict):
        raise DataError(f'Annotation file {path} is not of COCO form: a {type(content).__name__}, not an object.')
    annotations = content.get('annotations', []) if first is None else first  # a list of test images has none
    for key, entries, fields in (
        ('categories', content.get('categories'), dict(id=_ID, name=str)),
        ('images', content.get('images'), dict(id=_ID, file_name=str, height=_NUMBER, width=_NUMBER)),
        ('annotations', annotations, {}),
    ):
        _check_entries(path, key, entries, fields)
    names = [category['name'] for category in content['categories']]
    twice = sorted({str(name) for name in names if names.count(name) > 1})
    if twice:
        raise DataError(f'Annotation file {path} has more than one category named {", ".join(twice)}.')
    read = path, content['categories'], content['images']
    return CocoFile(*read, annotations) if first is None else CocoFile(*read, None, first)


def _check_entries(path: str, key: str, entries: Any, fields: dict[str, type | tuple[type, ...]]) -> None:
    """Raises DataError unless this is a list of objects that have these fields, of these types, and usable ids."""
    if not isinstance(entries, list):
        raise DataError(f'Annotation file {path} is not of COCO form: it has no list "{key}".')
    for entry in entries:
        wrong = _wrong_with(entry, fields)
        if wrong is not None:
            raise DataError(f'Annotation file {path} has an entry {wrong} in "{key}": {str(entry)[:120]}')


def _wrong_with(entry: Any, fields: dict[str, type | tuple[type, ...]]) -> str | None:
    if not isinstance(entry, dict):
        return 'that is no object'
    for name, kind in fields.items():
        if name not in entry:
            return f'without "{name}"'
        if not isinstance(entry[name], kind):
            return f'with a strange "{name}"'
    strange = [name for name in ('id', 'image_id', 'category_id') if isinstance(entry.get(name), list | dict)]
    return f'with a strange "{strange[0]}"' if strange else None


def _parse(path: str, data: bytes) -> Any:
    if not data.strip():
        raise DataError(f'Annotation file {path} is empty. Unpack or make it again.')
    try:
        return json.loads(data)
    except ValueError as error:
        raise DataError(f'Annotation file {path} is not valid JSON ({error}). Unpack or make it again.') from error


def _skim(path: str) -> tuple[Any, list[dict] | None]:
    """Categories and the first images of a big file, found by their keys, and its first annotations.

    The whole file, and None, if that fails.
    """
    with open(path, 'rb') as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if not data[-64:].rstrip().endswith(b'}'):
            raise DataError(f'Annotation file {path} is cut off: it does not end with "}}". Unpack or make it again.')
        try:
            categories = _decode_list(data, data.rfind(b'"categories"'), None)
            images = _decode_list(data, data.find(b'"images"'), SAMPLE_IMAGES)
            first = _decode_list(data, data.find(b'"annotations"'), SAMPLE_ANNOTATIONS, may_end=True)
        except ValueError:
            return _parse(path, data[:]), None
    return dict(categories=categories, images=images), first


def _decode_list(data: mmap.mmap, start: int, limit: int | None, may_end: bool = False) -> list:
    """Up to `limit` entries of the list that follows the key at `start`; ValueError if there is none.

    With `may_end`, those that the window holds whole are enough.
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

"""Reading an annotation file of COCO's form, as MMDetection reads it: UTF-8, a JSON object of three lists."""

import functools
import json
import math
from collections import Counter
from collections.abc import Callable
from typing import Any

from mmlape.errors import DataError
from mmlape.files import parse_json

HINT = 'Download or unpack it again.'
PACKED = {b'\x1f\x8b': 'gzip', b'PK': 'zip', b'BZh': 'bzip2', b'\xfd7zXZ': 'xz'}
"""First bytes of a compressed file."""


def _is_id(value: Any) -> bool:
    return isinstance(value, int | str) and not isinstance(value, bool)


def _is_side(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and math.isfinite(value) and value > 0 and value == int(value)


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


_FIELDS: dict[str, dict[str, Callable[[Any], bool]]] = {
    'categories': dict(id=_is_id, name=_is_name),
    'images': dict(id=_is_id, file_name=_is_name, height=_is_side, width=_is_side),
    'annotations': {},
}
"""The fields that the entries of each list must have, and what they must be."""
_WANTED: dict[Callable[[Any], bool], str] = {
    _is_id: 'a whole number or a text',
    _is_side: 'a number of pixels',
    _is_name: 'a text',
}


def read_coco(path: str) -> dict[str, Any]:
    """Read an annotation file.

    COCO's train2017, 450 MB, takes 10 s and 2.5 GB of memory, which MMDetection takes again and in
    every process. The check of its annotations takes about as long.

    Returns:
        Its content, with ``annotations`` in any case: a list of test images has none.

    Raises:
        DataError: It is empty, truncated, not JSON, or not of COCO's form.
    """
    try:
        content = parse_json(_read_text(path), unique_keys=True)
    except ValueError as error:
        raise DataError(f'Annotation file {path} is not valid JSON ({error}). {HINT}') from error
    require_form(content, path)
    return content


def require_form(content: Any, path: str) -> None:
    """Raise DataError unless what a JSON file holds is of COCO's form; complete ``annotations``."""
    if isinstance(content, list):
        raise DataError(
            f'Annotation file {path} is not of COCO form: a list, as a file of predictions is, not '
            'an object with "images", "annotations" and "categories".'
        )
    if not isinstance(content, dict):
        raise DataError(f'Annotation file {path} is not of COCO form: a {type(content).__name__}, not an object.')
    content.setdefault('annotations', [])
    for key, fields in _FIELDS.items():
        if not isinstance(content.get(key), list):
            raise DataError(f'Annotation file {path} is not of COCO form: it has no list "{key}".')
        for entry in content[key]:
            defect = _find_defect(entry, fields)
            if defect is not None:
                raise DataError(f'Annotation file {path} has an entry {defect} in "{key}": {str(entry)[:120]}')
    counts = Counter(class_names(content))
    if duplicates := sorted(name for name, count in counts.items() if count > 1):
        raise DataError(f'Annotation file {path} has more than one category named {", ".join(duplicates[:6])}.')


def _read_text(path: str) -> str:
    """Read a file as MMDetection does, in UTF-8."""
    try:
        with open(path, 'rb') as file:
            data = file.read()
    except OSError as error:
        raise DataError(f'Annotation file {path} cannot be read: {error.strerror}.') from error
    if not data.strip():
        raise DataError(f'Annotation file {path} is empty. {HINT}')
    for start, name in PACKED.items():
        if data.startswith(start):
            raise DataError(f'Annotation file {path} is compressed ({name}): unpack it.')
    encoding = json.detect_encoding(data)
    if encoding != 'utf-8':
        found = 'a byte order mark' if encoding == 'utf-8-sig' else encoding.upper()
        raise DataError(
            f'Annotation file {path} has {found}, which MMDetection does not read: save it as '
            'UTF-8 without a byte order mark.'
        )
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise DataError(
            f'Annotation file {path} is not UTF-8 (byte {error.start}), perhaps Latin-1: save it as UTF-8.'
        ) from error


def class_names(coco: dict[str, Any]) -> tuple[str, ...]:
    """Return the category names in the order of the file, which is MMDetection's label order."""
    return tuple(category['name'] for category in coco['categories'])


@functools.lru_cache
def listed_classes(path: str, version: tuple[int, int]) -> tuple[str, ...]:
    """Read the classes of a version of a file once: a study moves the data of each of its arms."""
    return class_names(read_coco(path))


def _find_defect(entry: Any, fields: dict[str, Callable[[Any], bool]]) -> str | None:
    """Say what an entry lacks: to be an object, one of these fields, the type of one, or ids that can be hashed."""
    if not isinstance(entry, dict):
        return 'that is not an object'
    for name, is_right in fields.items():
        if name not in entry:
            return f'without "{name}"'
        if not is_right(entry[name]):
            return f'with an invalid "{name}" ({entry[name]!r} is not {_WANTED[is_right]})'
    invalid = [name for name in ('id', 'image_id', 'category_id') if isinstance(entry.get(name), list | dict)]
    return f'with an invalid "{invalid[0]}"' if invalid else None

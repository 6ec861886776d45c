"""The JSON of a file as dataclasses, and back: what each field may hold follows from its type.

Files may be edited, or be another program's. They are checked where they are read, so that no
reader meets another type than these. ``str`` is a text of one line, ``int`` a whole number of at
least 0, ``float`` a number of at least 0; ``Annotated[..., Rule(...)]`` is something else. A field
may be missing or null, as in records of older versions, unless it has no default. What no field is
named after may be anything, and is left out.
"""

import json
import math
from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from mmlape.errors import DataError

LARGEST = 1e18
"""Below it, sums and times in any unit stay finite."""


@dataclass(frozen=True)
class Rule:
    """Which values fit, and what an error calls them."""

    expected: str
    fits: Callable[[Any], bool]


def is_number(value: Any, may_be_undefined: bool = False) -> bool:
    """Return whether a value is a number that sums stay finite with, or NaN or infinite if it may be undefined."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) < LARGEST if math.isfinite(value) else may_be_undefined


def is_whole(value: Any, limit: float = LARGEST) -> bool:
    """Return whether a value is a whole number from 0 to a limit."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < limit


RULES: dict[type, Rule] = {
    bool: Rule('true or false', lambda value: isinstance(value, bool)),
    float: Rule('a number of at least 0', lambda value: is_number(value) and value >= 0),
    int: Rule('a whole number of at least 0', is_whole),
    str: Rule('a text of one line', lambda value: isinstance(value, str) and '\n' not in value),
}


LATER = {'later': True}
"""Metadata of a field that a file has only once it holds something."""
UNSTORED = {'stored': False}
"""Metadata of a field that is in no file."""


@cache
def stored_fields(kind: type) -> dict[str, tuple[Field, Any]]:
    """Return the fields of a dataclass that a file has, each with its type, by name."""
    hints = get_type_hints(kind, include_extras=True)
    return {one.name: (one, hints[one.name]) for one in fields(kind) if one.metadata.get('stored', True)}


def decode(kind: Any, value: Any, file: Path, place: str = '') -> Any:
    """Return a value of a file as its type says; null is None.

    Raises:
        DataError: It is of another type; the message names file and field.
    """
    if value is None or kind is Any:
        return value
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated or kind in RULES:
        rule = inner[1] if inner else RULES[kind]
        if not rule.fits(value):
            raise _wrong(file, place, value, rule.expected)
        return value
    if origin in (Union, UnionType):  # with None
        return decode(inner[0], value, file, place)
    if origin is list:
        if not isinstance(value, list):
            raise _wrong(file, place, value, 'a list')
        return [decode(inner[0], one, file, f'{place}.{at}') for at, one in enumerate(value)]
    if not isinstance(value, dict):
        raise _wrong(file, place, value, 'an object')
    if origin is dict:
        return {name: decode(inner[1], one, file, f'{place}.{name}') for name, one in value.items()}
    return _decode_object(kind, value, file, place)


def _decode_object(kind: type, content: dict, file: Path, place: str) -> Any:
    values = {}
    for name, (one, hint) in stored_fields(kind).items():
        where = f'{place}.{name}' if place else name
        value = decode(hint, content.get(name), file, where)
        if value is not None:
            values[name] = value
        elif one.default is MISSING and one.default_factory is MISSING:
            raise DataError(f'{file}: {where} is missing or null: {FIX}')
    return kind(**values)


def encode(value: Any) -> Any:
    """Return a dataclass, and what it holds, as the values of JSON."""
    if isinstance(value, list):
        return [encode(one) for one in value]
    if isinstance(value, dict):
        return {name: encode(one) for name, one in value.items()}
    if not is_dataclass(value):
        return value
    content = {}
    for name, (one, _) in stored_fields(value.__class__).items():
        inner = getattr(value, name)
        if inner or inner == 0 or not one.metadata.get('later'):
            content[name] = encode(inner)
    return content


FIX = 'restore the file, or move its folder away'


def _wrong(file: Path, place: str, value: Any, expected: str) -> DataError:
    text = json.dumps(value, ensure_ascii=False)
    text = text if len(text) <= 60 else f'{text[:57]}...'
    return DataError(f'{file}: {place}={text} is not {expected}: {FIX}')

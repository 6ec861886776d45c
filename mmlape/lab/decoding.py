"""The JSON or YAML of a file as dataclasses, and back: what each field may hold follows from its type.

Files may be edited, or be another program's. They are checked where they are read, so that no
reader meets another type than these. ``str`` is a text of one line, ``int`` a whole number of at
least 0, ``float`` a number of at least 0; ``Annotated[..., Rule(...)]`` is something else. Of two
types the last is of objects. A field may be missing or null, as in records of older versions, unless
it has no default. What no field is named after may be anything, and is left out; `Closed` refuses it.
"""

import json
import math
from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from mmlape.errors import DataError, similar_to
from mmlape.files import FIX

LARGEST = 1e18
"""Below it, sums and times in any unit stay finite."""


@dataclass(frozen=True)
class FieldRule:
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


RULES: dict[type, FieldRule] = {
    bool: FieldRule('true or false', lambda value: isinstance(value, bool)),
    float: FieldRule('a number of at least 0', lambda value: is_number(value) and value >= 0),
    int: FieldRule('a whole number of at least 0', is_whole),
    str: FieldRule('a text of one line', lambda value: isinstance(value, str) and '\n' not in value),
}


Seed = Annotated[int, FieldRule('a whole number from 0 to 2**32 - 1', lambda value: is_whole(value, 2**32))]


class Closed:
    """A dataclass of a file that a user writes: another key is one misspelt."""


class UnfitError(ValueError):
    """A value of a file is of another type; the message names its place."""


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
    """Return a value of a file that this package has written as its type says; null is None.

    Raises:
        DataError: It is of another type; the message names file and field.
    """
    try:
        return decoded(kind, value, place)
    except UnfitError as error:
        raise DataError(f'{file}: {error}: {FIX}') from None


def decoded(kind: Any, value: Any, place: str) -> Any:
    """Return a value as its type says, or raise UnfitError, which names its place."""
    if value is None or kind is Any:
        return value
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated or kind in RULES:
        rule = inner[1] if inner else RULES[kind]
        if not rule.fits(value):
            raise _unfit(place, value, rule.expected)
        return value
    if origin in (Union, UnionType):
        kinds = [one for one in inner if one is not NoneType]
        return decoded(kinds[-isinstance(value, dict)], value, place)
    if origin is list:
        if not isinstance(value, list):
            raise _unfit(place, value, 'a list')
        return [decoded(inner[0], one, f'{place}.{at}') for at, one in enumerate(value)]
    if not isinstance(value, dict):
        raise _unfit(place, value, 'an object')
    if origin is dict:
        # the keys of JSON are texts anyway
        names = [str(decoded(inner[0], name, place) if get_args(inner[0]) else name) for name in value]
        return {name: decoded(inner[1], one, f'{place}.{name}') for name, one in zip(names, value.values())}
    return _decoded_object(kind, value, place)


def _decoded_object(kind: type, content: dict, place: str) -> Any:
    values, known = {}, stored_fields(kind)
    for key in content if issubclass(kind, Closed) else ():
        if key not in known:
            raise UnfitError(f"{place or 'the file'}: unknown '{key}'; {similar_to(str(key), known)}")
    for name, (one, hint) in known.items():
        where = f'{place}.{name}' if place else name
        value = decoded(hint, content.get(name), where)
        if value is not None:
            values[name] = value
        elif one.default is MISSING and one.default_factory is MISSING:
            raise UnfitError(f'{where} is missing or null')
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


def _unfit(place: str, value: Any, expected: str) -> UnfitError:
    text = json.dumps(value, ensure_ascii=False, default=str)
    text = text if len(text) <= 60 else f'{text[:57]}...'
    return UnfitError(f'{place}={text} is not {expected}')

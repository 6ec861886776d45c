"""The JSON or YAML of a file as dataclasses, and back: what each field may hold follows from its type.

A large file stays as it is read, and is checked: a ``TypedDict`` says what its objects hold.

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
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints, is_typeddict

from mmlape.errors import DataError, similar_to
from mmlape.files import FIX

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


Seed = Annotated[int, Rule('a whole number from 0 to 2**32 - 1', lambda value: is_whole(value, 2**32))]


class Closed:
    """A dataclass of a file that a user writes: another key is one misspelt."""


class UnfitError(ValueError):
    """A value of a file is of another type; the message names its place."""

    def __init__(self, reason: str, place: object = '') -> None:
        super().__init__(f'{place}{reason}')
        self.reason, self.place = reason, str(place)

    def inside(self, name: object) -> 'UnfitError':
        """Return the error of a value that is inside of another."""
        return UnfitError(self.reason, f'{name}.{self.place}'.strip('.'))


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
    try:
        return _reader(kind)(value)
    except UnfitError as error:
        raise error.inside(place) if place or error.place else UnfitError(f'the file{error.reason}') from None


@cache
def _reader(kind: Any) -> Callable[[Any], Any]:
    """Return the function that decodes values of a type, or raises UnfitError with their place inside."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return lambda value: value
    if origin is Annotated or kind in RULES:
        return _reader_of_rule(inner[1] if inner else RULES[kind])
    if origin in (Union, UnionType):
        kinds = [_reader(one) for one in inner if one is not NoneType]
        return lambda value: kinds[-isinstance(value, dict)](value)
    if origin is list:
        return _reader_of_list(_reader(inner[0]))
    if origin is dict:
        return _reader_of_dict(_reader(inner[0]) if get_args(inner[0]) else str, _reader(inner[1]))
    return _checker_of_typed(kind) if is_typeddict(kind) else _reader_of_object(kind)


def _reader_of_rule(rule: Rule) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if value is None or rule.fits(value):
            return value
        raise _unfit(value, rule.expected)

    return read


def _inside(read: Callable[[Any], Any], value: Any, name: object) -> Any:
    try:
        return read(value)
    except UnfitError as error:
        raise error.inside(name) from None


def _reader_of_list(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def read_list(value: Any) -> Any:
        if value is not None and not isinstance(value, list):
            raise _unfit(value, 'a list')
        return None if value is None else [_inside(read, one, at) for at, one in enumerate(value)]

    return read_list


def _reader_of_dict(name_of: Callable[[Any], Any], read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def read_dict(value: Any) -> Any:
        if value is not None and not isinstance(value, dict):
            raise _unfit(value, 'an object')
        # the keys of JSON are texts anyway
        return None if value is None else {str(name_of(key)): _inside(read, one, key) for key, one in value.items()}

    return read_dict


def _checker_of_typed(kind: Any) -> Callable[[Any], Any]:
    hints, required = get_type_hints(kind, include_extras=True), kind.__required_keys__
    fields = [(name, _reader(hint), name in required) for name, hint in hints.items()]

    def check(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _unfit(value, 'an object')
        name = ''
        try:
            for name, read, is_required in fields:
                one = value.get(name)
                if one is not None:
                    read(one)
                elif is_required:
                    raise UnfitError(' is missing or null')
        except UnfitError as error:
            raise error.inside(name) from None
        return value

    return check


def _reader_of_object(kind: Any) -> Callable[[Any], Any]:
    known = stored_fields(kind)

    def read_object(content: Any) -> Any:
        if content is None:
            return None
        if not isinstance(content, dict):
            raise _unfit(content, 'an object')
        for key in content if issubclass(kind, Closed) else ():
            if key not in known:
                raise UnfitError(f": unknown '{key}'; {similar_to(str(key), known)}")
        values = {}
        for name, (one, hint) in known.items():
            value = _inside(_reader(hint), content.get(name), name)
            if value is not None:
                values[name] = value
            elif one.default is MISSING and one.default_factory is MISSING:
                raise UnfitError(' is missing or null', name)
        return kind(**values)

    return read_object


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


def _unfit(value: Any, expected: str) -> UnfitError:
    text = json.dumps(value, ensure_ascii=False, default=str)
    text = text if len(text) <= 60 else f'{text[:57]}...'
    return UnfitError(f'={text} is not {expected}')

"""The fields of ``run.json`` and of a line of ``evaluations.jsonl``: what each may hold.

Files may be edited, or be another program's. They are checked where they are read, so that no
reader meets another type than these. A field may be missing or null, as in records of older
versions, and what is not listed may be anything.
"""

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mmlape.errors import DataError

LARGEST = 1e18
"""Below it, sums and times in any unit stay finite."""


@dataclass(frozen=True)
class Value:
    """A single value, and what an error calls it."""

    expected: str
    fits: Callable[[Any], bool]


@dataclass(frozen=True)
class Fields:
    """An object with fields of these names, of which some may not be missing or null."""

    fields: dict[str, Any]
    required: tuple[str, ...] = ()


@dataclass(frozen=True)
class Each:
    """A list, or an object with any names, whose values are all alike."""

    kind: type[dict] | type[list]
    inner: Any


def _is_number(value: Any, may_be_undefined: bool = False) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) < LARGEST if math.isfinite(value) else may_be_undefined


def _is_whole(value: Any, limit: float = LARGEST) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < limit


COUNT = Value('a whole number of at least 0', _is_whole)
SEED = Value('a whole number from 0 to 2**32 - 1', lambda value: _is_whole(value, 2**32))
METRIC = Value('a number', lambda value: _is_number(value, may_be_undefined=True))
AMOUNT = Value('a number of at least 0', lambda value: _is_number(value) and value >= 0)
TEXT = Value('a text', lambda value: isinstance(value, str))
LINE = Value('a text of one line', lambda value: TEXT.fits(value) and '\n' not in value)
FLAG = Value('true or false', lambda value: isinstance(value, bool))
STATES = ('running', 'finished', 'failed', 'interrupted')
STATE = Value(f'one of {", ".join(STATES)}', lambda value: value in STATES)
LINES, METRICS = Each(list, LINE), Each(dict, METRIC)

_EVALUATION = dict(step=COUNT, epoch=COUNT, metrics=METRICS, per_class=Each(dict, METRICS))
EVALUATION = Fields(_EVALUATION, ('step', 'metrics'))
IDENTITY = Fields(
    dict(
        settings_sha256=LINE,
        seed=SEED,
        world_size=COUNT,
        total_batch=COUNT,
        amp=LINE,
        batch_policy=LINE,
        checkpoint=Fields(dict(name=LINE, sha256=LINE), ('name',)),
        loads=LINES,
        code=Fields(dict(version=LINE, source=LINE, commit=LINE)),
        stack=Each(dict, LINE),
        paper=Fields(dict(name=LINE, pretrained=LINE, method=LINE, plain=FLAG)),
    )
)
RUN = Fields(
    dict(
        config=LINE,
        mmlape=LINE,
        seed=SEED,
        world_size=COUNT,
        images_per_process=COUNT,
        accumulation=COUNT,
        total_batch=COUNT,
        distributed=LINE,
        identity=IDENTITY,
        software_changes=LINES,
        host=LINE,
        device=LINE,
        started=LINE,
        finished=LINE,
        iter=COUNT,
        max_iters=COUNT,
        epoch=COUNT,
        max_epochs=COUNT,
        last=EVALUATION,
        best=Fields(dict(_EVALUATION, key=LINE), ('step', 'metrics', 'key')),
        evaluations=Each(list, EVALUATION),
        cost=Fields(
            dict(
                parameters=COUNT,
                peak_memory_mib=AMOUNT,
                memory_kind=LINE,
                seconds_per_iter=AMOUNT,
                train_seconds=AMOUNT,
                gpu_hours=AMOUNT,
            )
        ),
        stopped=Fields(dict(hook=LINE, cause=TEXT, iter=COUNT), ('hook', 'iter')),
        parts=LINES,
        state=STATE,
        reason=TEXT,
        failure=Fields(dict(kind=LINE, reason=TEXT)),
        updated=AMOUNT,
        eta=AMOUNT,
    )
)


def check_run(record: dict, file: Path) -> None:
    """Raise DataError, which names file and field, unless a record is as `RUN` says."""
    check(record, RUN, file)
    best = record.get('best')
    if best and best['key'] not in best['metrics']:
        raise DataError(
            f'{file}: best.key={best["key"]!r} is none of best.metrics, which has '
            f'{", ".join(best["metrics"]) or "none"}: {_FIX}'
        )


def check(value: Any, expected: Value | Fields | Each, file: Path, place: str = '') -> None:
    """Raise DataError, which names file and field, unless a value is null or as expected."""
    if value is None:
        return
    if isinstance(expected, Value):
        if not expected.fits(value):
            raise _wrong(file, place, value, expected.expected)
        return
    if isinstance(expected, Fields):
        if not isinstance(value, dict):
            raise _wrong(file, place, value, 'an object')
        for name, inner in expected.fields.items():
            where = f'{place}.{name}' if place else name
            if name in expected.required and value.get(name) is None:
                raise DataError(f'{file}: {where} is missing or null: {_FIX}')
            check(value.get(name), inner, file, where)
        return
    if not isinstance(value, expected.kind):
        raise _wrong(file, place, value, 'an object' if expected.kind is dict else 'a list')
    inside: Iterable[tuple] = value.items() if isinstance(value, dict) else enumerate(value)
    for name, inner in inside:
        check(inner, expected.inner, file, f'{place}.{name}')


_FIX = 'restore the file, or move its folder away'


def _wrong(file: Path, place: str, value: Any, expected: str) -> DataError:
    text = json.dumps(value, ensure_ascii=False)
    text = text if len(text) <= 60 else f'{text[:57]}...'
    return DataError(f'{file}: {place}={text} is not {expected}: {_FIX}')

"""Configs of plain values: read without running them, and written.

A plain config is assignments of numbers, texts, True, False, None, lists, tuples and dicts. MMEngine
replaces what stands between ``{{`` and ``}}`` before it parses a file, so ``{{`` never stands in what is
written: its second brace is an escape.
"""

import ast
import keyword
import math
import re
from collections.abc import Mapping
from numbers import Number
from pathlib import Path
from types import FunctionType
from typing import Any

from mmlape.errors import CheckpointError

LARGEST = 2_000_000  # bytes; the largest config of a recipe has 30,000
WIDTH = 100
_NAME = re.compile('[A-Za-z_][A-Za-z_0-9]*')  # Python would rewrite some letters of others
_SIZE = 1 << 63  # of an integer that torch and NumPy take


def read_plain(content: str | bytes, where: str | Path) -> dict[str, Any]:
    """Return the values of a plain config by name, without running it.

    Raises:
        CheckpointError: If it is more than assignments of plain values; the message names the line.
    """
    try:
        text = content if isinstance(content, str) else content.decode()
        if len(text) > LARGEST:
            raise ValueError(f'more than {LARGEST:,} characters')
        return dict(map(_assignment, ast.parse(text).body))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise CheckpointError(f'{where}: refused, no config of plain values ({error})') from error


def _not_plain(node: ast.AST) -> ValueError:
    return ValueError(
        f'line {getattr(node, "lineno", 1)} is more than plain values, so reading it could run code; '
        '`mmlape print-config` writes one of plain values'
    )


def _assignment(node: ast.stmt) -> tuple[str, Any]:
    """Return name and value of an assignment; ``_base_`` would name another file."""
    is_assignment = isinstance(node, ast.Assign) and len(node.targets) == 1
    if not is_assignment or not isinstance(node.targets[0], ast.Name):
        raise _not_plain(node)
    name = node.targets[0].id
    if name == '_base_':
        raise _not_plain(node)
    return name, _value(node.value)


def _value(node: ast.AST) -> Any:
    match node:
        case ast.Constant(value=None | bool() | str() as value):
            return value
        case ast.Constant(value=float(value)) if math.isfinite(value):
            return value
        case ast.Constant(value=int(value)) if value < _SIZE:
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float())):
            return -_value(node.operand)
        case ast.List(elts=items):
            return [_value(item) for item in items]
        case ast.Tuple(elts=items):
            return tuple(_value(item) for item in items)
        case ast.Dict(keys=keys, values=values):
            return {_key(key, node): _value(value) for key, value in zip(keys, values)}
        case ast.Call(func=ast.Name(id='dict'), args=[], keywords=entries):
            return {_key(entry.arg, entry): _value(entry.value) for entry in entries}
        case ast.Call(func=ast.Name(id='dict'), args=[ast.Dict() as items], keywords=[]):
            return _value(items)  # as MMEngine writes keys that are no names
    raise _not_plain(node)


def _key(key: ast.expr | str | None, node: ast.AST) -> Any:
    """Return a key of a dict; None stands for ``**``."""
    value = _value(key) if isinstance(key, ast.AST) else key
    if not isinstance(value, str | int):
        raise _not_plain(node)
    return value


def write_plain(values: Mapping[str, Any]) -> str:
    """Return the text of a plain config, which `read_plain` and MMEngine read back as it is."""
    return ''.join(f'{name} = {_text(value, "")}\n' for name, value in values.items())


def docstring(text: str) -> str:
    """Return the docstring of a module, of lines that may hold anything."""
    lines = '\n'.join(_literal(line)[1:-1] for line in text.split('\n'))
    return '"""' + lines.replace('"', r'\"') + '"""\n'


def _literal(text: str) -> str:
    return repr(text).replace('{{', r'{\x7b')


def _text(value: Any, indent: str) -> str:
    """Write a value on one line, or with an entry a line if it does not fit."""
    opening, closing, entries = '', '', []
    inner = f'{indent}    '
    if isinstance(value, dict):
        by_name = all(isinstance(key, str) and _NAME.fullmatch(key) and not keyword.iskeyword(key) for key in value)
        opening, closing = ('dict(', ')') if by_name else ('{', '}')
        entries = [f'{key}=' if by_name else f'{_text(key, inner)}: ' for key in value]
        entries = [entry + _text(entry_value, inner) for entry, entry_value in zip(entries, value.values())]
    elif isinstance(value, list | tuple):
        opening, closing = '[]' if isinstance(value, list) else '()'
        entries = [_text(entry_value, inner) for entry_value in value]
    elif value is None or isinstance(value, Number):
        return str(value)
    elif isinstance(value, type | FunctionType):  # of a config in Python; registries find it by this name
        return _literal(f'{value.__module__}.{value.__qualname__}')
    else:
        return _literal(value if isinstance(value, str) else str(value))
    comma = ',' if isinstance(value, tuple) and len(value) == 1 else ''
    line = f'{opening}{", ".join(entries)}{comma}{closing}'
    if '\n' not in line and len(indent) + len(line) <= WIDTH:
        return line
    return f'{opening}\n{"".join(f"{inner}{entry},{chr(10)}" for entry in entries)}{indent}{closing}'

"""What the parts of a config stand for: classes by their names, defaults of arguments, datasets inside wrappers."""

import inspect
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

import numpy as np

SPLITS = ('train', 'val', 'test')


def resolve_class(name: Any, default_scope: str | None, registry: str) -> type | None:
    """Find the class that a ``type`` of a config names; None if there is none.

    Args:
        name: A class, or its name with or without a scope.
        default_scope: Scope of a name without one.
        registry: Name of the registry, such as 'DATASETS'.
    """
    if inspect.isclass(name):
        return name
    scope, _, bare = str(name).rpartition('.')
    cls = getattr(import_module(f'{scope or default_scope or "mmengine"}.registry'), registry).get(bare)
    return cls if inspect.isclass(cls) else None


def default_argument(cls: type[Any], name: str) -> Any:
    """Return the default of a constructor's argument, of the nearest base class that has one; None without any."""
    for base in cls.__mro__:
        parameter = inspect.signature(base.__init__).parameters.get(name)  # type: ignore[misc]
        if parameter is not None and parameter.default is not parameter.empty:
            return parameter.default
    return None


def read_lines(path: str) -> list[str]:
    """Return the lines of a text file that are not blank, stripped."""
    with open(path, encoding='utf-8') as file:
        return [line.strip() for line in file if line.strip()]


def iter_unwrapped(dataset: dict) -> Iterator[dict]:
    """Yield the configs of the datasets inside wrappers such as RepeatDataset and ConcatDataset."""
    inner = dataset.get('datasets') or ([dataset['dataset']] if 'dataset' in dataset else None)
    if inner is None:
        yield dataset
    else:
        for part in inner:
            yield from iter_unwrapped(part)


def spread(items: Sequence, count: int) -> list:
    """Return up to ``count`` items, evenly spread from the first to the last."""
    picks = np.unique(np.linspace(0, len(items) - 1, min(count, len(items))).round().astype(int))
    return [items[pick] for pick in picks]

"""Names that are imported on first use."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


class Lazy:
    """An attribute of a class that another module has, imported on first use.

    Args:
        module: The other module.
        name: What it has.
    """

    def __init__(self, module: str, name: str):
        self.module, self.name = module, name

    def __get__(self, owner: Any, kind: type | None = None) -> Any:
        return getattr(import_module(self.module), self.name)


def attributes(
    package: str, table: Mapping[str, str], below: str | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package.

    Args:
        package: Its name.
        table: The module of each name that the package offers, without the folder's name.
        below: The folder of the modules, by default the package.
    """

    def get(name: str) -> Any:
        if name not in table:
            raise AttributeError(f'module {package!r} has no attribute {name!r}')
        return getattr(import_module(f'{below or package}.{table[name]}'), name)

    return get, lambda: sorted({*vars(sys.modules[package]), *table})

"""Registries of what configurations choose by name: position encodings, joinings, backbones.

They need no OpenMMLab. ``mmlape.registry`` makes the backbones known to its registries too, under
the same names.
"""

import contextlib
from collections.abc import Callable
from importlib import import_module
from types import ModuleType


class Registry:
    """Classes by name, with the methods of MMEngine's registries that users' files call.

    Args:
        name: What messages call an entry.
        *locations: Modules whose import registers this package's own classes, or that offer them in ``BACKBONES``
            and ``MODELS``, each imported on first use.
    """

    def __init__(self, name: str, *locations: str):
        self.name, self.locations = name, locations
        self.module_dict: dict[str, type] = {}

    def _offered(self, *tables: str) -> dict[str, ModuleType]:
        """Return the names in tables of the locations, each with the module that offers it."""
        modules = [*map(import_module, self.locations)]
        return {key: module for module in modules for table in tables for key in getattr(module, table, ())}

    def import_from_location(self) -> None:
        """Register this package's own classes, of models the backbones, which need no other package."""
        for key in self._offered('BACKBONES'):
            self.get(key)

    def import_all(self) -> None:
        """Register every name, unless a package that it needs is missing or too old."""
        for key in self._offered('BACKBONES', 'MODELS'):
            with contextlib.suppress(ImportError, AssertionError):
                self.get(key)

    def get(self, key: str) -> type | None:
        """Return the class of a name, or None."""
        module = self._offered('BACKBONES', 'MODELS').get(key)
        if module is not None and key not in self.module_dict:
            self.module_dict[key] = getattr(module, key)
        return self.module_dict.get(key)

    def build(self, cfg: dict) -> object:
        """Build an object from its ``type``, a name or a class, and the arguments beside it.

        Raises:
            KeyError: If nothing is registered under that name.
        """
        options = dict(cfg)
        kind = options.pop('type')
        cls = self.get(kind) if isinstance(kind, str) else kind
        if cls is None:
            raise KeyError(f'no {self.name} is called {kind!r}; there are: {", ".join(self.module_dict)}')
        return cls(**options)

    def register_module(
        self, name: str | list[str] | None = None, force: bool = False, module: type | None = None
    ) -> Callable[[type], type] | type:
        """Register a class under its own name or another; a name that a location offers is taken, imported or not.

        A decorator, unless the class is given as ``module``.

        Raises:
            KeyError: If another class has that name, unless ``force``.
        """

        def register(cls: type) -> type:
            for key in [name] if isinstance(name, str) else name or [cls.__name__]:
                if not force and (self.get(key) or cls) is not cls:
                    raise KeyError(f'{self.name} {key!r} is registered already: {self.module_dict[key]}')
                self.module_dict[key] = cls
            return cls

        return register if module is None else register(module)


POSITION_ENCODINGS = Registry('position encoding', 'mmlape.models.position')
JOININGS = Registry('joining', 'mmlape.models.position')
BACKBONES = Registry('model', 'mmlape.models', 'mmlape.projects')
"""Backbones, and what needs OpenMMLab beside them."""

"""Registries of what configurations choose by name: position encodings, joinings, backbones.

They need no OpenMMLab. ``mmlape.registry`` makes the backbones known to its registries too, under the same names.
"""

import contextlib
from collections.abc import Callable
from importlib import import_module


class Registry:
    """Classes by name, with the methods of MMEngine's registries that users' files call.

    Args:
        name: What messages call an entry.
        location: The module whose import registers this package's own classes.
    """

    def __init__(self, name: str, location: str):
        self.name, self.location = name, location
        self.module_dict: dict[str, type] = {}

    def import_from_location(self) -> None:
        """Import the module that registers this package's own classes."""
        import_module(self.location)

    def get(self, key: str) -> type | None:
        """Return the class of a name, or None."""
        self.import_from_location()
        return self.module_dict.get(key)

    def build(self, cfg: dict) -> object:
        """Build an object from its ``type``, a name or a class, and the arguments beside it.

        Raises:
            KeyError: If nothing is registered under that name.
        """
        options = dict(cfg)
        kind = options.pop('type')
        found = self.get(kind) if isinstance(kind, str) else kind
        if found is None:
            raise KeyError(f'no {self.name} is called {kind!r}; there are: {", ".join(self.module_dict)}')
        return found(**options)

    def register_module(
        self, name: str | list[str] | None = None, force: bool = False, module: type | None = None
    ) -> Callable[[type], type] | type:
        """Register a class under its own name or another; a decorator, unless the class is given as ``module``.

        Raises:
            KeyError: If another class has that name, unless ``force``.
        """

        def register(kind: type) -> type:
            for key in [name] if isinstance(name, str) else name or [kind.__name__]:
                if not force and self.module_dict.get(key, kind) is not kind:
                    raise KeyError(f'{self.name} {key!r} is registered already: {self.module_dict[key]}')
                self.module_dict[key] = kind
            return kind

        return register if module is None else register(module)


class PublicRegistry(Registry):
    """A registry of what a module offers: its ``__all__``, each name imported on first use."""

    def get(self, key: str) -> type | None:
        """Return the class of a name, or None."""
        module = import_module(self.location)
        if key not in self.module_dict and key in module.__all__:
            self.module_dict[key] = getattr(module, key)
        return self.module_dict.get(key)

    def register_module(
        self, name: str | list[str] | None = None, force: bool = False, module: type | None = None
    ) -> Callable[[type], type] | type:
        """Register a class as ``Registry`` does; a public name is taken, imported or not."""

        def register(kind: type) -> type:
            for key in [name] if isinstance(name, str) else name or [kind.__name__]:
                self.get(key)
            super(PublicRegistry, self).register_module(name, force, kind)
            return kind

        return register if module is None else register(module)

    def import_from_location(self) -> None:
        """Register the backbones, which need no other package."""
        for key in import_module(self.location).BACKBONES:
            self.get(key)

    def import_all(self) -> None:
        """Register every name, unless a package that it needs is missing or too old."""
        for key in import_module(self.location).__all__:
            with contextlib.suppress(ImportError, AssertionError):
                self.get(key)


POSITION_ENCODINGS = Registry('position encoding', 'mmlape.models.position')
JOININGS = Registry('joining', 'mmlape.models.position')
BACKBONES = PublicRegistry('model', 'mmlape.models')
"""Backbones, and what needs OpenMMLab beside them."""

"""Registries of what configurations choose by name: position encodings, joinings, backbones.

They need no OpenMMLab. ``mmlape.registry`` makes the backbones known to its registries too, under
the same names.
"""

import contextlib
from collections.abc import Callable
from importlib import import_module

from mmlape.weights import gate


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
        given = options.pop('type')
        found = self.get(given) if isinstance(given, str) else given
        if found is None:
            raise KeyError(f'no {self.name} is called {given!r}; there are: {", ".join(self.module_dict)}')
        return found(**options)

    def register_module(
        self, name: str | list[str] | None = None, force: bool = False, module: type | None = None
    ) -> Callable[[type], type] | type:
        """Register a class under its own name or another.

        A decorator, unless the class is given as ``module``.

        Raises:
            KeyError: If another class has that name, unless ``force``.
        """

        def register(cls: type) -> type:
            for key in [name] if isinstance(name, str) else name or [cls.__name__]:
                if not force and self.module_dict.get(key, cls) is not cls:
                    raise KeyError(f'{self.name} {key!r} is registered already: {self.module_dict[key]}')
                self.module_dict[key] = cls
            return cls

        return register if module is None else register(module)


class PublicRegistry(Registry):
    """A registry of what several modules offer in ``BACKBONES`` and ``MODELS``, each name imported on first use."""

    def __init__(self, name: str, *locations: str):
        super().__init__(name, locations[0])
        self.locations = locations

    def get(self, key: str) -> type | None:
        """Return the class of a name, or None."""
        for module in map(import_module, self.locations):
            if key not in self.module_dict and key in module.BACKBONES | module.MODELS:
                self.module_dict[key] = getattr(module, key)
        return self.module_dict.get(key)

    def register_module(
        self, name: str | list[str] | None = None, force: bool = False, module: type | None = None
    ) -> Callable[[type], type] | type:
        """Register a class as ``Registry`` does; a public name is taken, imported or not."""

        def register(cls: type) -> type:
            for key in [name] if isinstance(name, str) else name or [cls.__name__]:
                self.get(key)
            super(PublicRegistry, self).register_module(name, force, cls)
            return cls

        return register if module is None else register(module)

    def import_from_location(self) -> None:
        """Register the backbones, which need no other package."""
        for module in map(import_module, self.locations):
            for key in module.BACKBONES:
                self.get(key)

    def import_all(self) -> None:
        """Register every name, unless a package that it needs is missing or too old."""
        self.import_from_location()
        for module in map(import_module, self.locations):
            for key in module.MODELS:
                with contextlib.suppress(ImportError, AssertionError):
                    self.get(key)


POSITION_ENCODINGS = Registry('position encoding', 'mmlape.models.position')
JOININGS = Registry('joining', 'mmlape.models.position')
BACKBONES = PublicRegistry('model', 'mmlape.models', 'mmlape.projects')
"""Backbones, and what needs OpenMMLab beside them."""

# what a foreign config may name of them
gate.MODELS['mmlape'] = BACKBONES.get
gate.KINDS.update(pe_type=POSITION_ENCODINGS.get, pe_joining=JOININGS.get)
gate.WORDS.update(
    norm_placement=('both', 'normformer', 'post', 'pre', 'sub-ln'), pe_type=('none',), tokenizer=('conv', 'patch')
)
gate.NAMED += ('attn', 'ffn', 'pooling', 'timm_model', 'vit_feature_source')

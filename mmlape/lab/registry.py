"""The laboratory's registries of scope `mmlape`: children of MMEngine's root registries.

A type is written `mmlape.Name` from any other scope. A registry imports its locations when it is
first asked for a type, so a config needs no `custom_imports`. Some locations are an extension's;
`mmlape.registry`, which MMEngine imports by the scope's name, has the other registries.

MMEngine builds what a config takes from a base named `mmlape::...` (`_base_.model`) in the scope
`mmlape`. Our configs write the types of other packages without a scope, so there a name without one
is looked up in the config's default scope first: the base then means the same under its prefix as
under its path.
"""

import contextlib
import inspect
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from mmengine import registry as root

from mmlape.lab.extension import extensions
from mmlape.openmmlab.mim import adapt_mmengine

adapt_mmengine()
SCOPE = 'mmlape'


class LazyRegistry(root.Registry):
    """A registry whose locations give their names one by one, each importing only the module that defines it.

    A name without a scope means what it means in the config's default scope.

    Args:
        *args: As MMEngine's.
        shared: A registry of the same classes that needs no MMEngine: what is added to either is in both.
        **kwargs: As MMEngine's.
    """

    def __init__(self, *args, shared: Any = None, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.shared = shared
        if shared is not None:
            self._module_dict = shared.module_dict

    def get(self, key: str) -> type | None:
        """Return the class of that name: of the default scope that `mmlape` has replaced, else of this registry."""
        outer = None if '.' in key else self._replaced()
        found = None if outer is None else outer.get(key)
        if found is not None:
            return found
        name = key.removeprefix(f'{SCOPE}.')
        if self.shared is not None:
            self.shared.get(name)
        for location in self._locations:
            getattr(import_module(location), name, None)
        return super().get(key)

    def _replaced(self) -> root.Registry | None:
        """Return the registry of the scope in use before `mmlape`.

        None if `mmlape` is not the current scope.
        """
        scopes = [instance.scope_name for instance in root.DefaultScope._instance_dict.values()]
        others = [scope for scope in scopes if scope != SCOPE]
        if not others or scopes[-1] != SCOPE:
            return None
        import_module(f'{others[-1]}.registry')
        return self._get_root_registry()._search_child(others[-1])

    def _register_module(self, module: type, module_name: Any = None, force: bool = False) -> None:
        if self.shared is None:
            super()._register_module(module, module_name, force)
        else:
            self.shared.register_module(module_name, force, module)

    def import_all(self) -> None:
        """Import every module that defines one of the names, unless a package that it needs is missing or too old."""
        if self.shared is not None:
            self.shared.import_all()
        for location in self._locations:
            module = import_module(location)
            for name in getattr(module, '__all__', ()):  # else the import has defined them
                with contextlib.suppress(ImportError, AssertionError):
                    getattr(module, name)


def child(name: str, *locations: str, shared: Any = None) -> root.Registry:
    """Make the child of one of MMEngine's registries, with modules of this package and those of extensions."""
    parent = getattr(root, name)
    offered = [place for one in extensions() for place in one.registries.get(name, ())]
    return LazyRegistry(parent.name, parent=parent, scope=SCOPE, locations=[*locations, *offered], shared=shared)


MODEL_WRAPPERS = child('MODEL_WRAPPERS', 'mmlape.lab.distributed')
DATASETS = child('DATASETS', 'mmlape.lab.datasets')
TRANSFORMS = child('TRANSFORMS', 'mmlape.lab.datasets.transforms', 'mmlape.lab.datasets')
DATA_SAMPLERS = child('DATA_SAMPLERS', 'mmlape.lab.datasets')
WEIGHT_INITIALIZERS = child('WEIGHT_INITIALIZERS')
LOOPS = child('LOOPS', 'mmlape.lab.inference.tiled_loops')
METRICS = child('METRICS', 'mmlape.lab.evaluation')
HOOKS = child('HOOKS', 'mmlape.lab.training.hooks', 'mmlape.lab.analysis')
OPTIM_WRAPPER_CONSTRUCTORS = child('OPTIM_WRAPPER_CONSTRUCTORS', 'mmlape.lab.training.optim')
VISBACKENDS = child('VISBACKENDS', 'mmlape.lab.training.runner')
OPTIM_WRAPPERS = child('OPTIM_WRAPPERS', 'mmlape.lab.training.optim')
PARAM_SCHEDULERS = child('PARAM_SCHEDULERS', 'mmlape.lab.config.schedule')


def class_of(node: Any, default_scope: str | None, registry: str, default: str | None = None) -> type | None:
    """Return the class that a part of a config is built from, in the scope that MMEngine builds it in.

    Args:
        node: The part; ``default`` stands for a ``type`` that it does not have.
        default_scope: The config's.
        registry: Of MMEngine, such as 'DATASETS'.
        default: See ``node``.

    Returns:
        None if the part names no class that there is.
    """
    found = node if isinstance(node, Mapping) else {}
    return resolve_class(found.get('type', default), default_scope, registry, found.get('_scope_'))


def resolve_class(given: Any, default_scope: str | None, registry: str, scope: str | None = None) -> type | None:
    """Return what a ``type`` is or names: it is a class, a name with or without a scope, or the path of an import."""
    if isinstance(given, str) and given:
        given = _found(getattr(root, registry), given, default_scope or 'mmengine', scope)
    return given if inspect.isclass(given) else None


def _found(registry: root.Registry, text: str, *scopes: str | None) -> Any:
    """Return what a text names in the last of the scopes that is one; None if nothing."""
    place = registry
    with contextlib.ExitStack() as stack, contextlib.suppress(RuntimeError):
        for scope in filter(None, scopes):
            stack.enter_context(root.DefaultScope.overwrite_default_scope(scope))
            with contextlib.suppress(ImportError):
                import_module(f'{scope}.registry')
            child = registry._search_child(scope)
            place = registry if child is None else child  # an empty one is false
        return place.get(text)
    return None


def is_a(node: Any, cls: type, default_scope: str | None, registry: str) -> bool:
    """Return whether the ``type`` of a part of a config is a class, or one that is derived from it."""
    return issubclass(class_of(node, default_scope, registry) or object, cls)


def is_one_type(first: Any, second: Any, default_scope: str | None) -> bool:
    """Return whether two texts name one class or function: with a scope, without one, or by the path of an import."""
    if not (isinstance(first, str) and isinstance(second, str)):
        return False
    pairs = [[_found(one, text, default_scope or 'mmengine') for text in (first, second)] for one in _roots()]
    both = [one is two for one, two in pairs if one is not None and two is not None]
    return bool(both) and all(both)


TYPES = ('type', 'constructor')
"""Keys of what MMEngine looks up in a registry; a class below another key is an argument."""


def with_names(node: Any, default_scope: str | None, key: str = 'type') -> Any:
    """Return a part of a config with a text in place of each class and function that is a type, dicts in place.

    That is the name where OpenMMLab registers it; else the path of its import, by which any process finds it.
    """
    if isinstance(node, dict):
        node.update({name: with_names(value, default_scope, name) for name, value in node.items()})
    elif type(node) in (list, tuple):
        return type(node)(with_names(value, default_scope, key) for value in node)
    elif key in TYPES and (inspect.isclass(node) or inspect.isfunction(node)):
        return _name_of(node, default_scope)
    return node


def _name_of(thing: Any, default_scope: str | None) -> Any:
    """Return a text that names a class or a function in a config of this scope; the thing itself if none does."""
    package = thing.__module__.partition('.')[0]
    for module in (f'{package}.registry', 'mmcv.cnn'):  # which register what they have, and layers of torch
        with contextlib.suppress(ImportError):
            import_module(module)
    for registry in _roots():
        if package in registry.children:
            _found(registry, f'{package}.{thing.__name__}', 'mmengine')  # a lazy registry has it from then on
        for scope, name in _names_in(registry, thing) if package in (*_REGISTERED, *registry.children) else ():
            for text in (thing.__name__, name, f'{scope}.{name}'):
                if _found(registry, text, default_scope or 'mmengine') is thing:
                    return text
    path = f'{thing.__module__}.{thing.__qualname__}'
    return path if _found(root.HOOKS, path, 'mmengine') is thing else thing


_REGISTERED = ('mmengine', 'mmcv', 'torch', 'torchvision')
"""Packages without a scope, whose classes MMEngine and MMCV register."""


def _roots() -> list[root.Registry]:
    return [one for one in vars(root).values() if isinstance(one, root.Registry)]


def _names_in(registry: root.Registry, thing: Any) -> Iterator[tuple[str, str]]:
    yield from ((registry.scope, name) for name, found in registry.module_dict.items() if found is thing)
    for child in registry.children.values():
        yield from _names_in(child, thing)

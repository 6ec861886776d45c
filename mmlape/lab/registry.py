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
from mmengine.utils import apply_to

from mmlape.lab.extension import extensions
from mmlape.mim import adapt_mmengine

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


MODEL_WRAPPERS = child('MODEL_WRAPPERS', 'mmlape.lab.engine.distributed.processes')
DATASETS = child('DATASETS', 'mmlape.lab.datasets')
TRANSFORMS = child('TRANSFORMS', 'mmlape.lab.datasets.transforms', 'mmlape.lab.datasets')
DATA_SAMPLERS = child('DATA_SAMPLERS', 'mmlape.lab.datasets')
WEIGHT_INITIALIZERS = child('WEIGHT_INITIALIZERS')
LOOPS = child('LOOPS', 'mmlape.lab.engine.tiled_loops')
METRICS = child('METRICS', 'mmlape.lab.evaluation')
HOOKS = child('HOOKS', 'mmlape.lab.engine.hooks', 'mmlape.lab.analysis')
OPTIM_WRAPPER_CONSTRUCTORS = child('OPTIM_WRAPPER_CONSTRUCTORS', 'mmlape.lab.engine.optim')
VISBACKENDS = child('VISBACKENDS', 'mmlape.lab.engine.trackers')
OPTIM_WRAPPERS = child('OPTIM_WRAPPERS', 'mmlape.lab.engine.optim')
PARAM_SCHEDULERS = child('PARAM_SCHEDULERS', 'mmlape.lab.engine.schedule')


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
    with contextlib.ExitStack() as stack, contextlib.suppress(RuntimeError):
        for scope in scopes:
            place = stack.enter_context(registry.switch_scope_and_registry(scope))
        return place.get(text)
    return None


def is_a(node: Any, cls: type, default_scope: str | None, registry: str) -> bool:
    """Return whether the ``type`` of a part of a config is a class, or one that is derived from it."""
    return issubclass(class_of(node, default_scope, registry) or object, cls)


def with_names(node: Any, default_scope: str | None) -> Any:
    """Return a part of a config with the name of each registered class and function in place of the thing itself.

    What no registry has stays.
    """
    things: list[Any] = []
    apply_to(node, _is_thing, things.append)
    return apply_to(node, _is_thing, lambda thing: _name_of(thing, default_scope)) if things else node


def _is_thing(value: Any) -> bool:
    return inspect.isclass(value) or inspect.isfunction(value)


def _name_of(thing: Any, default_scope: str | None) -> Any:
    """Return a text that names a class or a function in a config of this scope; the thing itself if none does."""
    package, roots = thing.__module__.partition('.')[0], [one for one in vars(root).values() if _is_root(one)]
    with contextlib.suppress(ImportError):  # which puts the registries of its package into MMEngine's
        import_module(f'{package}.registry')
    for registry in roots:
        if package in registry.children:
            _found(registry, f'{package}.{thing.__name__}', 'mmengine')  # a lazy registry has it from then on
        for scope, name in _names_in(registry, thing):
            for text in (thing.__name__, name, f'{scope}.{name}'):
                if _found(registry, text, default_scope or 'mmengine') is thing:
                    return text
    return thing


def _is_root(value: Any) -> bool:
    return isinstance(value, root.Registry)


def _names_in(registry: root.Registry, thing: Any) -> Iterator[tuple[str, str]]:
    yield from ((registry.scope, name) for name, found in registry.module_dict.items() if found is thing)
    for child in registry.children.values():
        yield from _names_in(child, thing)

"""Registries of scope `mmlape`: one child for each of MMEngine's root registries.

A type is written `mmlape.Name` from any other scope. MMEngine imports this module by the scope's
name, and a registry imports its locations when it is first asked for a type, so a config needs no
`custom_imports`.

MMEngine builds what a config takes from a base named `mmlape::...` (`_base_.model`) in the scope
`mmlape`. Our configs write the types of other packages without a scope, so there a name without one
is looked up in the config's default scope first: the base then means the same under its prefix as
under its path.
"""

import contextlib
from importlib import import_module

from mmengine import registry as root

from mmlape.kinds import BACKBONES, JOININGS, POSITION_ENCODINGS  # noqa: F401  (users' files take them from here)

SCOPE = 'mmlape'


class ScopedRegistry(root.Registry):
    """A registry in which a name without a scope means what it means in the config's default scope."""

    def get(self, key: str):
        """Return the class of that name: of the default scope that `mmlape` has replaced, else of this registry."""
        outer = None if '.' in key else self._replaced()
        found = None if outer is None else outer.get(key)
        return found or super().get(key)

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


class LazyRegistry(ScopedRegistry):
    """A registry whose locations give their names one by one, each importing only the module that defines it."""

    def get(self, key: str):
        """Return the class of that name, once the module that defines it has been imported."""
        for location in self._locations:
            getattr(import_module(location), key.removeprefix(f'{SCOPE}.'), None)
        return super().get(key)

    def import_all(self) -> None:
        """Import every module that defines one of the names, unless a package that it needs is missing or too old."""
        for location in self._locations:
            module = import_module(location)
            for name in module.__all__:
                with contextlib.suppress(ImportError, AssertionError):
                    getattr(module, name)


class ModelRegistry(ScopedRegistry):
    """A registry whose classes are those of ``BACKBONES``, in one dict: what is added to either is in both."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._module_dict = BACKBONES.module_dict

    def get(self, key: str):
        """Return the class of that name, once the module that defines it has been imported."""
        BACKBONES.get(key.removeprefix(f'{SCOPE}.'))
        return super().get(key)

    def _register_module(self, module, module_name=None, force: bool = False) -> None:
        """Register a class for both."""
        BACKBONES.register_module(module_name, force, module)

    def import_all(self) -> None:
        """Import every module that defines one of the names, unless a package that it needs is missing or too old."""
        BACKBONES.import_all()


def _child(name: str, *locations: str, cls: type[root.Registry] = ScopedRegistry) -> root.Registry:
    parent = getattr(root, name)
    return cls(parent.name, parent=parent, scope=SCOPE, locations=list(locations))


MODELS = _child('MODELS', 'mmlape.models', cls=ModelRegistry)
MODEL_WRAPPERS = _child(
    'MODEL_WRAPPERS',
    'mmlape.lab.engine.distributed.processes',
    'mmlape.lab.engine.distributed.sharding',
)
DATASETS = _child('DATASETS', 'mmlape.projects', cls=LazyRegistry)
TRANSFORMS = _child(
    'TRANSFORMS', 'mmlape.lab.datasets.transforms', 'mmlape.projects', cls=LazyRegistry
)
DATA_SAMPLERS = _child('DATA_SAMPLERS', 'mmlape.lab.datasets')
WEIGHT_INITIALIZERS = _child('WEIGHT_INITIALIZERS', 'mmlape.models.weight_init')
METRICS = _child('METRICS', 'mmlape.lab.evaluation', 'mmlape.projects', cls=LazyRegistry)
HOOKS = _child(
    'HOOKS', 'mmlape.lab.engine.hooks', 'mmlape.lab.analysis', 'mmlape.projects', cls=LazyRegistry
)
OPTIM_WRAPPER_CONSTRUCTORS = _child('OPTIM_WRAPPER_CONSTRUCTORS', 'mmlape.lab.engine.paramwise')
VISBACKENDS = _child('VISBACKENDS', 'mmlape.lab.engine.trackers')
OPTIM_WRAPPERS = _child('OPTIM_WRAPPERS', 'mmlape.lab.engine.optim')
PARAM_SCHEDULERS = _child('PARAM_SCHEDULERS', 'mmlape.lab.engine.schedule')

# the package defines nothing for the other roots, but MMEngine looks types of scope `mmlape` up
# there as well; without a location it would warn that the package is not installed
for _name, _root in list(vars(root).items()):
    if isinstance(_root, root.Registry) and SCOPE not in _root.children:
        _child(_name, __name__)

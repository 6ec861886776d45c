"""All registries of scope `mmlape`: one child for each of MMEngine's root registries.

MMEngine imports this module by the scope's name. `mmlape.lab.registry` says what a name means in
it; models are those of `mmlape.kinds`, which need no OpenMMLab.
"""

from mmengine import registry as root

from mmlape.kinds import BACKBONES, JOININGS, POSITION_ENCODINGS  # noqa: F401  (users' files take them from here)
from mmlape.lab.registry import (  # noqa: F401  (and these)
    DATA_SAMPLERS,
    DATASETS,
    HOOKS,
    METRICS,
    MODEL_WRAPPERS,
    OPTIM_WRAPPER_CONSTRUCTORS,
    OPTIM_WRAPPERS,
    PARAM_SCHEDULERS,
    SCOPE,
    TRANSFORMS,
    VISBACKENDS,
    WEIGHT_INITIALIZERS,
    ScopedRegistry,
    child,
)


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


MODELS = child('MODELS', 'mmlape.models', cls=ModelRegistry)

# the package defines nothing for the other roots, but MMEngine looks types of scope `mmlape` up
# there as well; without a location it would warn that the package is not installed
for _name, _root in list(vars(root).items()):
    if isinstance(_root, root.Registry) and SCOPE not in _root.children:
        child(_name, __name__, cls=ScopedRegistry)

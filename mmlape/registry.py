"""Registries of scope ``mmlape``: children of mmengine's roots, filled when a config first asks for a type.

A type is written ``mmlape.Name`` from any other scope. MMEngine imports this module by the scope's name, and each
registry imports its ``locations`` on first use, so a config needs no ``custom_imports``.
"""

from importlib import import_module

from mmengine import registry as root


class LazyRegistry(root.Registry):
    """A registry whose location gives its names one by one, each importing only the module that defines it."""

    def get(self, key: str):
        """MMEngine's look-up, once the module of that name has been imported."""
        for location in self._locations:
            getattr(import_module(location), key, None)
        return super().get(key)


def _child(name: str, *locations: str, kind: type[root.Registry] = root.Registry) -> root.Registry:
    parent = getattr(root, name)
    return kind(parent.name, parent=parent, scope='mmlape', locations=list(locations))


MODELS = _child('MODELS', 'mmlape.models')
MODEL_WRAPPERS = _child('MODEL_WRAPPERS', 'mmlape.engine.distributed.processes', 'mmlape.engine.distributed.sharding')
DATASETS = _child('DATASETS', 'mmlape.datasets')
TRANSFORMS = _child('TRANSFORMS', 'mmlape.datasets.transforms')
DATA_SAMPLERS = _child('DATA_SAMPLERS', 'mmlape.datasets')
METRICS = _child('METRICS', 'mmlape.evaluation', kind=LazyRegistry)
HOOKS = _child('HOOKS', 'mmlape.engine.hooks')
OPTIM_WRAPPER_CONSTRUCTORS = _child('OPTIM_WRAPPER_CONSTRUCTORS', 'mmlape.engine.layer_decay')
POSITION_ENCODINGS = root.Registry('position encoding', scope='mmlape', locations=['mmlape.models.position'])
JOININGS = root.Registry('joining', scope='mmlape', locations=['mmlape.models.position'])
OPTIM_WRAPPERS = _child('OPTIM_WRAPPERS', 'mmlape.engine.optim')

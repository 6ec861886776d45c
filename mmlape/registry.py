"""Registries of scope ``mmlape``: children of mmengine's roots, filled when a config first asks for a type.

A type is written ``mmlape.Name`` from any other scope. MMEngine imports this module by the scope's name, and each
registry imports its ``locations`` on first use, so a config needs no ``custom_imports``.
"""

from mmengine import registry as root


def _child(name: str, *locations: str) -> root.Registry:
    parent = getattr(root, name)
    return root.Registry(parent.name, parent=parent, scope='mmlape', locations=list(locations))


MODELS = _child('MODELS', 'mmlape.models')
MODEL_WRAPPERS = _child('MODEL_WRAPPERS', 'mmlape.engine.distributed')
DATASETS = _child('DATASETS', 'mmlape.datasets')
TRANSFORMS = _child('TRANSFORMS', 'mmlape.datasets.transforms')
DATA_SAMPLERS = _child('DATA_SAMPLERS', 'mmlape.datasets')
METRICS = _child('METRICS', 'mmlape.evaluation')
HOOKS = _child('HOOKS', 'mmlape.engine.hooks')
OPTIM_WRAPPER_CONSTRUCTORS = _child('OPTIM_WRAPPER_CONSTRUCTORS', 'mmlape.engine.optim_layer_decay')
OPTIM_WRAPPERS = _child('OPTIM_WRAPPERS', 'mmlape.engine.optim')

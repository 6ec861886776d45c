"""All registries of scope `mmlape`: one child for each of MMEngine's root registries.

MMEngine imports this module by the scope's name. `mmlape.lab.registry` says what a name means in
it; models are those of `mmlape.kinds`, which need no OpenMMLab.
"""

from mmengine import registry as root

import mmlape.admitted  # noqa: F401  (what a config of others may name)
from mmlape.kinds import BACKBONES, JOININGS, POSITION_ENCODINGS  # noqa: F401  (users' files take them from here)
from mmlape.lab.registry import (  # noqa: F401  (and these)
    DATA_SAMPLERS,
    DATASETS,
    HOOKS,
    LOOPS,
    METRICS,
    MODEL_WRAPPERS,
    OPTIM_WRAPPER_CONSTRUCTORS,
    OPTIM_WRAPPERS,
    PARAM_SCHEDULERS,
    SCOPE,
    TRANSFORMS,
    VISBACKENDS,
    WEIGHT_INITIALIZERS,
    child,
)

MODELS = child('MODELS', 'mmlape.models', shared=BACKBONES)

# the package defines nothing for the other roots, but MMEngine looks types of scope `mmlape` up
# there as well; without a location it would warn that the package is not installed
for _name, _root in list(vars(root).items()):
    if isinstance(_root, root.Registry) and SCOPE not in _root.children:
        child(_name, __name__)

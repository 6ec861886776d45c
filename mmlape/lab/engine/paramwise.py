"""Learning rate and weight decay of every parameter.

MMEngine's constructor by ``mmlape.param_rules``.
"""

from mmengine.optim import DefaultOptimWrapperConstructor
from mmengine.registry import OPTIM_WRAPPER_CONSTRUCTORS as ROOT_CONSTRUCTORS
from torch import nn

from mmlape.lab.engine.loading import position_parameters
from mmlape.lab.registry import OPTIM_WRAPPER_CONSTRUCTORS
from mmlape.param_rules import ParamRules, groups_of, require_known, rules_of, with_position_decay


@OPTIM_WRAPPER_CONSTRUCTORS.register_module(
    name=['ParamwiseOptimWrapperConstructor', 'LayerDecayOptimWrapperConstructor']
)
class ParamwiseOptimWrapperConstructor(DefaultOptimWrapperConstructor):
    """MMEngine's constructor, with rules that do not displace each other.

    ``paramwise_cfg`` has MMEngine's keys. A custom key applies to every parameter whose name
    contains it, but only to what it sets: of the keys with ``lr_mult`` the longest scales the
    learning rate, of those with ``decay_mult`` the longest scales the weight decay. So
    ``backbone=dict(lr_mult=0.1)`` leaves norms and biases without decay. What no key sets,
    ``norm_decay_mult``, ``bias_decay_mult``, ``bias_lr_mult`` and so on set. ``position_lr_mult``
    and ``position_decay_mult``, 0 by default, are those of position encodings, whatever the kind:
    tables, absolute and relative, frequencies, convolutions. ``layer_decay_rate``, of mmpretrain's
    constructor, scales the resulting learning rate, also in detectors and segmentors, whose
    ``backbone`` knows a parameter's depth. Parameters whose names begin with one of
    ``layer_decay_first`` train at the rate of the embeddings, as Mask2Former's queries and output
    layers do in ViT-Adapter's public code.

    Parameters of equal options are one group of the optimiser; MMEngine makes one for each. One
    that several modules share is there once, by the rules for the first of its names.

    Raises:
        ConfigError: ``paramwise_cfg`` has an unknown key. On the call, if it scales a learning rate
            that ``optimizer`` does not set, if it has ``layer_decay_rate`` and nothing knows a
            parameter's depth, or if it has ``layer_decay_first`` without that rate or with the
            beginning of no name.
    """

    def __init__(self, optim_wrapper_cfg: dict, paramwise_cfg: dict | None = None):
        weight_decay = (optim_wrapper_cfg.get('optimizer') or {}).get('weight_decay')
        super().__init__(optim_wrapper_cfg, with_position_decay(paramwise_cfg or {}, weight_decay))

    def _validate_cfg(self) -> None:
        super()._validate_cfg()
        require_known(self.paramwise_cfg, 'optim_wrapper.')

    def add_params(self, params: list[dict], module: nn.Module, **kwargs) -> None:
        """Add the trained parameters of ``module`` to ``params``, in groups of equal options."""
        params += groups_of(module, self.paramwise_cfg, self.base_lr, self.base_wd, position_parameters(module))

    def rules(self, model: nn.Module) -> dict[str, ParamRules]:
        """Return the rules of every trained parameter, by its name."""
        return rules_of(model, self.paramwise_cfg, position_parameters(model))


def parameter_rules(model: nn.Module, optim_wrapper: dict) -> dict[str, tuple[str, str]]:
    """Return what scales learning rate and weight decay of every trained parameter.

    None with other constructors.
    """
    constructor = optim_wrapper.get('constructor', 'DefaultOptimWrapperConstructor')
    if isinstance(constructor, str):
        constructor = ROOT_CONSTRUCTORS.get(constructor)
    if not issubclass(constructor, ParamwiseOptimWrapperConstructor):
        return {}
    decided = constructor(optim_wrapper, optim_wrapper.get('paramwise_cfg')).rules(model)
    return {name: (', '.join(map(str, part.rates)), str(part.decay or '')) for name, part in decided.items()}

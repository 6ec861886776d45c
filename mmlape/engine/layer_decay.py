"""Layer-wise learning rates (BEiT, arXiv 2106.08254): layer k of L trains at ``rate ** (L + 1 - k)`` of the full rate.

The embeddings are layer 0. A layer's PE norm shares its layer's rate; ViT-Adapter's own modules, necks and heads
train at the full rate.
"""

from collections.abc import Callable

from mmpretrain.engine.optimizers import LearningRateDecayOptimWrapperConstructor
from torch import nn

from mmlape.errors import ConfigError
from mmlape.registry import OPTIM_WRAPPER_CONSTRUCTORS


@OPTIM_WRAPPER_CONSTRUCTORS.register_module()
class LayerDecayOptimWrapperConstructor(LearningRateDecayOptimWrapperConstructor):
    """mmpretrain's constructor, also for detectors and segmentors, whose ``backbone`` knows a parameter's depth.

    A config names it as ``optim_wrapper.constructor='mmlape.LayerDecayOptimWrapperConstructor'`` and sets
    ``paramwise_cfg.layer_decay_rate``; the other keys of ``paramwise_cfg`` are mmpretrain's, whose ``custom_keys``
    know ``decay_mult`` only.

    Raises:
        ConfigError: On the call, if neither the model nor its backbone has ``get_layer_depth``.
    """

    def add_params(
        self,
        params: list[dict],
        module: nn.Module,
        prefix: str = '',
        get_layer_depth: Callable | None = None,
        **kwargs,
    ) -> None:
        """Add the parameters of ``module`` to ``params``, one group each."""
        super().add_params(params, module, prefix, get_layer_depth or layer_depths(module), **kwargs)


def layer_depths(model: nn.Module) -> Callable[[str], tuple[int, int]]:
    """Return the function from a parameter's name to its depth and the number of depths.

    Raises:
        ConfigError: The model has none.
    """
    if hasattr(model, 'get_layer_depth'):
        return model.get_layer_depth
    backbone = getattr(model, 'backbone', None)
    if not hasattr(backbone, 'get_layer_depth'):
        raise ConfigError(
            f'layer-wise learning rates need a backbone with get_layer_depth, such as mmlape.VisionTransformer; '
            f'{type(model).__name__} has {type(backbone).__name__}'
        )
    depths = backbone.get_layer_depth('', '')[1]

    def depth(name: str) -> tuple[int, int]:
        if name.startswith('backbone.'):
            return backbone.get_layer_depth(name, 'backbone.')
        return depths - 1, depths

    return depth

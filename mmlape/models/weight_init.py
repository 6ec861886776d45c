"""Initial values of public code that MMEngine's initialisers do not give.

``init_cfg`` names them.
"""

from mmengine.model import BaseInit, update_init_info
from mmengine.model.weight_init import trunc_normal_
from torch import nn

from mmlape.registry import WEIGHT_INITIALIZERS

CUT_AT_TWO = 0.87962566103423978
"""Standard deviation of a standard normal distribution that is cut off at -2 and 2."""


@WEIGHT_INITIALIZERS.register_module()
class BigVisionInit(BaseInit):
    """big_vision's: Xavier's range for each linear map, LeCun's normal for the stem, zeros for the class token.

    Queries, keys and values are three maps.
    """

    def __call__(self, module: nn.Module) -> None:
        """Initialise a ViT; what it has beside these keeps its values."""
        for name, part in module.named_modules():
            if isinstance(part, nn.Linear):
                for weight in part.weight.data.chunk(3 if name.endswith('qkv') else 1):
                    nn.init.xavier_uniform_(weight)
            elif isinstance(part, nn.Conv2d):
                std = part.weight[0].numel() ** -0.5 / CUT_AT_TWO
                trunc_normal_(part.weight, std=std, a=-2 * std, b=2 * std)
            if isinstance(part, nn.Linear | nn.Conv2d) and part.bias is not None:
                nn.init.zeros_(part.bias)
        if hasattr(module, 'cls_token'):
            nn.init.zeros_(module.cls_token)
        if hasattr(module, '_params_init_info'):
            update_init_info(module, init_info=type(self).__name__)


@WEIGHT_INITIALIZERS.register_module()
class TorchInit(BaseInit):
    """PyTorch's own, for layers of the classes that ``layer`` names."""

    def __call__(self, module: nn.Module) -> None:
        """Initialise these layers anew."""
        for part in module.modules():
            if {kind.__name__ for kind in type(part).__mro__} & set(self.layer):
                part.reset_parameters()
        if hasattr(module, '_params_init_info'):
            update_init_info(module, init_info=type(self).__name__)

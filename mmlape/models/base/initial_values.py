"""Initial values of linear maps."""

import torch.nn as nn
from torch.nn.init import trunc_normal_


def init_linear(module: nn.Module) -> None:
    """Initialise a linear map as DeiT does; for ``apply``."""
    if isinstance(module, nn.Linear):
        trunc_normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)

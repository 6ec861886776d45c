"""What LaPE and Dual PatchNorm cost in a ViT of timm, beside that ViT: training step, inference."""

import torch
from torch import nn

from benchmarks.comparison import Comparison, Models, Settings
from benchmarks.models import arch_of, prepared

FUNCTIONS = ('add_lape', 'add_dual_patchnorm')
"""Of the package, which change the model."""


def comparisons(settings: Settings) -> list[Comparison]:
    """Return one per case, size, dtype and work."""
    found = []
    for name in FUNCTIONS:
        sides = {'timm': lambda size: model(settings, size), name: lambda size, name=name: model(settings, size, name)}
        case = Models(f'{settings.arch}: {name}', sides, ('training step', 'forward'), memory=True)
        found += case.comparisons('timm', settings)
    return found


def model(settings: Settings, size: int, function: str | None = None) -> nn.Module:
    """Build timm's ViT with a head of 1000 classes, and change it by a function of the package."""
    from timm.models.vision_transformer import VisionTransformer

    import mmlape

    torch.manual_seed(0)
    arch = arch_of(settings)
    built = VisionTransformer(
        img_size=size, embed_dim=arch['embed_dims'], depth=arch['num_layers'], num_heads=arch['num_heads'],
        mlp_ratio=arch['feedforward_channels'] / arch['embed_dims'],
    )  # fmt: skip
    if function is not None:
        getattr(mmlape, function)(built)
    return prepared(built, settings)

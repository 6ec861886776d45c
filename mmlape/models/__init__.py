"""Backbones, each imported on first use; those of single papers' rows are in `mmlape.projects`."""

from importlib import import_module

BACKBONES = {
    'VisionTransformer': 'vit.model',
    'DistilledVisionTransformer': 'vit.model',
    'ViTAdapter': 'adapter.model',
    'SwinTransformer': 'swin.model',
    'TimmViT': 'timm.model',
    'TimmViTAdapter': 'timm.adapter',
    'ViTPyramid': 'vit.pyramid',
}
"""Where the backbones are; a file that several could load is the first one's."""
MODELS: dict[str, str] = {}
"""Where models are that derive from classes of OpenMMLab; those of today are all in
`mmlape.projects`."""

__all__ = list(BACKBONES)


def __getattr__(name: str):
    if name not in BACKBONES:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    return getattr(import_module(f'{__name__}.{BACKBONES[name]}'), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])

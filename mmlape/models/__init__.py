"""Backbones, each imported on first use; those of single papers' rows are in `mmlape.projects`."""

from mmlape.lazy import attributes

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
__getattr__, __dir__ = attributes(__name__, BACKBONES)

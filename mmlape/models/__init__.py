"""Backbones: import this package to register them; the registries do so by themselves."""

from mmlape.models.backbones.timm_adapter import TimmViTAdapter
from mmlape.models.backbones.timm_vit import TimmViT
from mmlape.models.backbones.vit import DistilledVisionTransformer, VisionTransformer
from mmlape.models.backbones.vit_adapter import ViTAdapter

__all__ = ['DistilledVisionTransformer', 'TimmViT', 'TimmViTAdapter', 'ViTAdapter', 'VisionTransformer']

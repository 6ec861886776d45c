"""Backbones: import this package to register them; the registries do so by themselves."""

from mmlape.models.backbones.compact import CompactTransformer
from mmlape.models.backbones.vit import DistilledVisionTransformer, VisionTransformer
from mmlape.models.backbones.vit_adapter import ViTAdapter

__all__ = ['CompactTransformer', 'DistilledVisionTransformer', 'ViTAdapter', 'VisionTransformer']

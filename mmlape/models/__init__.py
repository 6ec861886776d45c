"""Backbones: import this package to register them; the registries do so by themselves."""

from mmlape.models.vit import DistilledVisionTransformer, VisionTransformer
from mmlape.models.vit_adapter import ViTAdapter

__all__ = ['DistilledVisionTransformer', 'ViTAdapter', 'VisionTransformer']

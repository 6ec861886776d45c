"""Backbones: import this package to register them; the registries do so by themselves."""

from mmlape.models.backbones.swin import SwinTransformer
from mmlape.models.backbones.vit import DistilledVisionTransformer, VisionTransformer
from mmlape.models.backbones.vit_adapter import ViTAdapter

__all__ = ['DistilledVisionTransformer', 'SwinTransformer', 'ViTAdapter', 'VisionTransformer']

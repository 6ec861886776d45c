"""Backbones: import this package to register them; the registries do so by themselves."""

from mmlape.models.backbones.ceit import CeiT
from mmlape.models.backbones.compact import CompactTransformer
from mmlape.models.backbones.swin import SwinTransformer
from mmlape.models.backbones.t2t_vit import T2TViT
from mmlape.models.backbones.timm_adapter import TimmViTAdapter
from mmlape.models.backbones.timm_vit import TimmViT
from mmlape.models.backbones.vit import DistilledVisionTransformer, VisionTransformer
from mmlape.models.backbones.vit_adapter import ViTAdapter

__all__ = [
    'CeiT',
    'CompactTransformer',
    'DistilledVisionTransformer',
    'SwinTransformer',
    'T2TViT',
    'TimmViT',
    'TimmViTAdapter',
    'ViTAdapter',
    'VisionTransformer',
]

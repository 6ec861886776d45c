"""Backbones: import this package to register them; the registries do so by themselves.

Detectors are imported on first use, since they need MMDetection.
"""

from importlib import import_module

from mmlape.models.backbones.ceit import CeiT
from mmlape.models.backbones.compact import CompactTransformer
from mmlape.models.backbones.swin import SwinTransformer
from mmlape.models.backbones.t2t_vit import T2TViT
from mmlape.models.backbones.timm_adapter import TimmViTAdapter
from mmlape.models.backbones.timm_vit import TimmViT
from mmlape.models.backbones.vit import DistilledVisionTransformer, VisionTransformer
from mmlape.models.backbones.vit_adapter import ViTAdapter

_DETECTORS = {'DETR': '.detectors.detr'}

__all__ = [
    'DETR',
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


def __getattr__(name: str):
    if name not in _DETECTORS:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    return getattr(import_module(_DETECTORS[name], __name__), name)

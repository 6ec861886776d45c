"""Backbones: import this package to register them; the registries do so by themselves.

Detectors, heads and necks are imported on first use, since they need MMDetection or MMSegmentation.
"""

from importlib import import_module

from mmlape.models.adapter.model import ViTAdapter
from mmlape.models.ceit.model import CeiT
from mmlape.models.compact.model import CompactTransformer
from mmlape.models.swin.model import SwinTransformer
from mmlape.models.t2t.model import T2TViT
from mmlape.models.timm.adapter import TimmViTAdapter
from mmlape.models.timm.model import TimmViT
from mmlape.models.vit.model import DistilledVisionTransformer, VisionTransformer
from mmlape.models.vit.pyramid import ViTPyramid

_ON_USE = {
    'BNHead': '.dinov2.linear_head',
    'DETR': '.detr.model',
    'HybridTaskCascadeRoIHead': '.htc.roi_head',
    'LiT': '.lit.model',
    'Mask2FormerHead': '.mask2former.head',
    'MSDeformAttnPixelDecoder': '.mask2former.pixel_decoder',
    'MultiScaleDeformableAttention': '.mask2former.pixel_decoder',
    'ChannelMapperWithPooling': '.necks.pooling',
    'ExtraAttention': '.necks.extra_attention',
    'TextTransformer': '.lit.text',
    'TransformersText': '.lit.pretrained',
}

__all__ = [
    'DETR',
    'BNHead',
    'CeiT',
    'ChannelMapperWithPooling',
    'CompactTransformer',
    'DistilledVisionTransformer',
    'ExtraAttention',
    'HybridTaskCascadeRoIHead',
    'LiT',
    'MSDeformAttnPixelDecoder',
    'Mask2FormerHead',
    'MultiScaleDeformableAttention',
    'SwinTransformer',
    'T2TViT',
    'TextTransformer',
    'TimmViT',
    'TimmViTAdapter',
    'TransformersText',
    'ViTAdapter',
    'ViTPyramid',
    'VisionTransformer',
]


def __getattr__(name: str):
    if name not in _ON_USE:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    return getattr(import_module(_ON_USE[name], __name__), name)

"""Backbones, and what they have around them in detectors, segmentors and classifiers; each imported on first use."""

from importlib import import_module

BACKBONES = {
    'VisionTransformer': 'vit.model',
    'DistilledVisionTransformer': 'vit.model',
    'ViTAdapter': 'adapter.model',
    'CeiT': 'ceit.model',
    'CompactTransformer': 'compact.model',
    'SwinTransformer': 'swin.model',
    'T2TViT': 't2t.model',
    'TimmViT': 'timm.model',
    'TimmViTAdapter': 'timm.adapter',
    'ViTPyramid': 'vit.pyramid',
}
"""Where the backbones are; a file that several could load is the first one's."""
OF_OPENMMLAB = {
    'DETR': 'detr.model',
    'BNHead': 'dinov2.linear_head',
    'ChannelMapperWithPooling': 'necks.pooling',
    'ExtraAttention': 'necks.extra_attention',
    'HybridTaskCascadeRoIHead': 'htc.roi_head',
    'LiT': 'lit.model',
    'MSDeformAttnPixelDecoder': 'mask2former.pixel_decoder',
    'Mask2FormerHead': 'mask2former.head',
    'MultiScaleDeformableAttention': 'mask2former.pixel_decoder',
    'TextTransformer': 'lit.text',
    'TransformersText': 'lit.pretrained',
}
"""Where those are that derive from classes of OpenMMLab."""
_MODULES = BACKBONES | OF_OPENMMLAB

__all__ = list(_MODULES)


def __getattr__(name: str):
    if name not in _MODULES:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    return getattr(import_module(f'{__name__}.{_MODULES[name]}'), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])

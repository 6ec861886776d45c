"""Mask2Former (CVPR 2022) on the deformable attention of this package."""

MODELS = {
    'Mask2FormerHead': 'head',
    'MSDeformAttnPixelDecoder': 'pixel_decoder',
    'MultiScaleDeformableAttention': 'pixel_decoder',
}

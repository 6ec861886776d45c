"""The linear head of DINOv2's and DINOv3's segmentors."""

MODELS = {'BNHead': 'linear_head'}

"""HTC++ (Hybrid Task Cascade, CVPR 2019) as ViT-Adapter uses it."""

MODELS = {'ExtraAttention': 'extra_attention', 'HybridTaskCascadeRoIHead': 'roi_head'}
REGISTERED = {'InstaBoost': 'insta_boost'}

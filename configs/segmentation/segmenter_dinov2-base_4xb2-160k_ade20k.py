"""Segmenter with DINOv2-B, registers, trained: not run by us, no paper's figure.

tools/dist_train.sh configs/segmentation/segmenter_dinov2-base_4xb2-160k_ade20k.py 4
"""

_base_ = './segmenter_dinov2-small_4xb2-160k_ade20k.py'

embed_dims = 768
model = dict(
    backbone=dict(
        model_name='vit_base_patch14_reg4_dinov2.lvd142m',
        init_cfg=dict(checkpoint='hf-hub:timm/vit_base_patch14_reg4_dinov2.lvd142m'),
    ),
    decode_head=dict(in_channels=embed_dims, channels=embed_dims, embed_dims=embed_dims, num_heads=embed_dims // 64),
)

"""Segmenter (mask transformer) over CeiT-S, default PE; not run by us, no paper's figure.

tools/dist_train.sh configs/segmentation/segmenter_ceit-small_4xb2-160k_ade20k.py 4
"""

_base_ = './segmenter_ceit-tiny_4xb2-160k_ade20k.py'

embed_dims = 384
model = dict(
    backbone=dict(arch='small', init_cfg=dict(checkpoint='pretrained/ceit_small_patch16_224.pth')),
    decode_head=dict(in_channels=embed_dims, channels=embed_dims, embed_dims=embed_dims, num_heads=embed_dims // 64),
)

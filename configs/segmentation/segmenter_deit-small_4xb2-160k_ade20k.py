"""Seg-S-Mask/16, default PE. Expect 42.374 mIoU (the paper's, mean of five seeds); not run by us.

tools/dist_train.sh configs/segmentation/segmenter_deit-small_4xb2-160k_ade20k.py 4
"""

_base_ = './segmenter_deit-tiny_4xb2-160k_ade20k.py'

embed_dims = 384
model = dict(
    backbone=dict(arch='deit-small', init_cfg=dict(checkpoint='pretrained/deit_small_patch16_224-cd65a155.pth')),
    decode_head=dict(in_channels=embed_dims, channels=embed_dims, embed_dims=embed_dims, num_heads=embed_dims // 64),
)

"""Segmenter (mask transformer) over CeiT-S, default PE; not run by us, no paper's figure.

tools/dist_train.sh configs/segmenter/segmenter_ceit-small_4xb2-160k_ade20k.py 4
"""

_base_ = [
    '../_base_/models/segmenter_ceit.py',
    '../_base_/datasets/ade20k.py',
    '../_base_/schedules/sgd_160k.py',
    '../_base_/default_runtime.py',
]
model = dict(
    backbone=dict(arch='small', init_cfg=dict(checkpoint='pretrained/ceit_small_patch16_224.pth')),
    decode_head=dict(in_channels=384, channels=384, embed_dims=384, num_heads=6),
)

"""Seg-S-Mask/16, LaPE. Expect 42.808 mIoU (the paper's, mean of five seeds); not run by us.

tools/dist_train.sh configs/segmenter/segmenter_deit-small-lape_4xb2-160k_ade20k.py 4
"""

_base_ = [
    '../_base_/models/segmenter.py',
    '../_base_/datasets/ade20k.py',
    '../_base_/schedules/sgd_160k.py',
    '../_base_/default_runtime.py',
]
model = dict(
    backbone=dict(arch='deit-small', pe_joining='lape', init_cfg=dict(checkpoint='pretrained/deit_small_lape.pth')),
    decode_head=dict(in_channels=384, channels=384, embed_dims=384, num_heads=6),
)

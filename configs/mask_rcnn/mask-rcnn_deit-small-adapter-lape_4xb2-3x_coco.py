"""Mask R-CNN, ViT-Adapter-S, LaPE. Expect 48.7 box / 43.0 mask AP (the paper's, mean of five seeds); not run by us.

tools/dist_train.sh configs/mask_rcnn/mask-rcnn_deit-small-adapter-lape_4xb2-3x_coco.py 4
"""

_base_ = [
    '../_base_/models/mask_rcnn_vit-adapter.py',
    '../_base_/datasets/coco_instance.py',
    '../_base_/schedules/adamw_3x.py',
    '../_base_/default_runtime.py',
]
model = dict(
    backbone=dict(
        arch='deit-small',
        drop_path_rate=0.2,
        pe_joining='lape',
        init_cfg=dict(checkpoint='pretrained/deit_small_lape.pth'),
    ),
    neck=dict(in_channels=[384] * 4),
)

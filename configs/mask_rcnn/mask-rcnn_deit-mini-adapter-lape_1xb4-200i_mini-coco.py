"""Mask R-CNN with a small ViT-Adapter on the mini data, LaPE: for the demo and the tests, not for comparing methods.

mmlape train configs/mask_rcnn/mask-rcnn_deit-mini-adapter-lape_1xb4-200i_mini-coco.py
"""

_base_ = [
    '../_base_/models/mask_rcnn_vit-adapter.py',
    '../_base_/models/mini_vit-adapter.py',
    '../_base_/datasets/mini_coco.py',
    '../_base_/schedules/mini.py',
    '../_base_/default_runtime.py',
]
embed_dims = _base_.embed_dims
channels = 64
num_classes = len(_base_.classes)
model = dict(
    backbone=dict(arch=dict(_delete_=True, **_base_.mini_arch), **_base_.mini_adapter),
    neck=dict(in_channels=[embed_dims] * 4, out_channels=channels),
    rpn_head=dict(in_channels=channels, feat_channels=channels),
    roi_head=dict(
        bbox_roi_extractor=dict(out_channels=channels),
        bbox_head=dict(in_channels=channels, fc_out_channels=4 * channels, num_classes=num_classes),
        mask_roi_extractor=dict(out_channels=channels),
        mask_head=dict(in_channels=channels, conv_out_channels=channels, num_classes=num_classes),
    ),
    train_cfg=dict(rpn_proposal=dict(max_per_img=200), rcnn=dict(sampler=dict(num=64))),
    test_cfg=dict(rpn=dict(max_per_img=50), rcnn=dict(max_per_img=20)),
)
train_cfg = dict(max_iters=200, val_interval=67)
default_hooks = dict(checkpoint=dict(save_best='coco/bbox_mAP', rule='greater'))

"""Mask R-CNN with FPN over Swin-T; the heads are mmdetection's own, for 80 classes. Swin-S has the same widths."""

_base_ = 'mmdet::_base_/models/mask-rcnn_r50_fpn.py'

embed_dims = 96
model = dict(
    backbone=dict(
        _delete_=True,
        type='mmlape.SwinTransformer',
        arch='tiny',
        pe_type='rpe',
        drop_path_rate=0.2,
        out_indices=(0, 1, 2, 3),
        out_type='featmap',
        pad_small_map=True,
        init_cfg=dict(type='Pretrained', checkpoint='pretrained/swin_tiny_patch4_window7_224.pth'),
    ),
    neck=dict(in_channels=[embed_dims * 2**stage for stage in range(4)]),
)

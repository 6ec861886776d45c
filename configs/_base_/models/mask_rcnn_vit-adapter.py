"""Mask R-CNN with FPN over ViT-Adapter-Ti; the heads are mmdetection's own, for 80 classes."""

_base_ = 'mmdet::_base_/models/mask-rcnn_r50_fpn.py'

model = dict(
    backbone=dict(
        _delete_=True,
        type='mmlape.ViTAdapter',
        pe_joining='default',
        window_attn=[True, True, False] * 4,
        window_size=14,
        vit_feature_source='last',
        init_cfg=dict(type='Pretrained', checkpoint='pretrained/deit_tiny_patch16_224-a1311bcf.pth'),
        arch='deit-tiny',
        drop_path_rate=0.1,
    ),
    neck=dict(in_channels=[192] * 4),
)

"""Faster R-CNN with FPN over ViT-Adapter-S, for boxes without masks; the heads are mmdetection's, for 80 classes."""

_base_ = 'mmdet::_base_/models/faster-rcnn_r50_fpn.py'

model = dict(
    backbone=dict(
        _delete_=True,
        type='mmlape.ViTAdapter',
        arch='deit-small',
        pe_joining='default',
        window_attn=[True, True, False] * 4,
        window_size=14,
        vit_feature_source='last',
        drop_path_rate=0.2,
        init_cfg=dict(type='Pretrained', checkpoint='pretrained/deit_small_patch16_224-cd65a155.pth'),
    ),
    neck=dict(in_channels=[384] * 4),
)

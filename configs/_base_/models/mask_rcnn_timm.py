"""Mask R-CNN with FPN over DINOv2-S of timm and its adapter, for 80 classes."""

_base_ = 'mmdet::_base_/models/mask-rcnn_r50_fpn.py'

model = dict(
    backbone=dict(
        _delete_=True,
        type='mmlape.TimmViTAdapter',
        vit=dict(model_name='vit_small_patch14_reg4_dinov2.lvd142m', drop_path_rate=0.2),
        vit_feature_source='last',
        init_cfg=dict(type='Pretrained', checkpoint='hf-hub:timm/vit_small_patch14_reg4_dinov2.lvd142m'),
    ),
    neck=dict(in_channels=[384] * 4),
)

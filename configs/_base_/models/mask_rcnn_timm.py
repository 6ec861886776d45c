"""Mask R-CNN with FPN over DINOv2-S of timm and its adapter, for 80 classes. `sizes`: what the other width changes.

`paramwise` follows timm: layer decay, and no weight decay on vectors, position embeddings and prefix tokens. Its rate
is our choice. A frozen ViT is only read (`read_only`).
"""

_base_ = 'mmdet::_base_/models/mask-rcnn_r50_fpn.py'

paramwise = dict(
    layer_decay_rate=0.9,
    flat_decay_mult=0.0,
    custom_keys=dict(cls_token=dict(decay_mult=0.0), reg_token=dict(decay_mult=0.0)),
)
sizes = dict(small=dict(neck=dict(in_channels=[384] * 4)), base=dict(neck=dict(in_channels=[768] * 4)))
read_only = dict(mode='read-only', vit_feature_source='interaction')
model = dict(
    backbone=dict(
        _delete_=True,
        type='mmlape.TimmViTAdapter',
        vit=dict(model_name='vit_small_patch14_reg4_dinov2.lvd142m', drop_path_rate=0.2),
        vit_feature_source='last',
        init_cfg=dict(type='Pretrained', checkpoint='hf-hub:timm/vit_small_patch14_reg4_dinov2.lvd142m'),
    ),
    **sizes['small'],
)

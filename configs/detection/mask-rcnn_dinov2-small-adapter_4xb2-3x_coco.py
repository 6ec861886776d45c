"""Mask R-CNN with DINOv2-S, registers, ViT-Adapter: not run by us, no paper's figure.

tools/dist_train.sh configs/detection/mask-rcnn_dinov2-small-adapter_4xb2-3x_coco.py 4
"""

_base_ = [
    '../_base_/models/mask_rcnn_vit-adapter.py',
    '../_base_/models/foundation.py',
    '../_base_/datasets/coco_instance.py',
    '../_base_/schedules/adamw_3x.py',
]
embed_dims = 384
model = dict(
    backbone=dict(
        _delete_=True,
        type='mmlape.TimmViTAdapter',
        vit=dict(model_name='vit_small_patch14_reg4_dinov2.lvd142m', drop_path_rate=0.2),
        vit_feature_source='last',
        init_cfg=dict(type='Pretrained', checkpoint='hf-hub:timm/vit_small_patch14_reg4_dinov2.lvd142m'),
    ),
    neck=dict(in_channels=[embed_dims] * 4),
)
optim_wrapper = dict(paramwise_cfg=_base_.paramwise)

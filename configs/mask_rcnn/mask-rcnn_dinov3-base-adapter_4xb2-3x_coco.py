"""Mask R-CNN with DINOv3-B, the adapter reads it frozen: not run by us, no paper's figure.

tools/dist_train.sh configs/mask_rcnn/mask-rcnn_dinov3-base-adapter_4xb2-3x_coco.py 4
"""

_base_ = [
    '../_base_/models/mask_rcnn_timm.py',
    '../_base_/datasets/coco_instance.py',
    '../_base_/schedules/adamw_3x.py',
    '../_base_/default_runtime.py',
]
name = 'vit_base_patch16_dinov3.lvd1689m'
model = dict(
    backbone=dict(
        vit=dict(model_name=name, drop_path_rate=0.0, frozen=True),
        mode='read-only',
        vit_feature_source='interaction',
        init_cfg=dict(checkpoint=f'hf-hub:timm/{name}'),
    ),
    neck=dict(in_channels=[768] * 4),
)
optim_wrapper = dict(paramwise_cfg=_base_.timm_decay)

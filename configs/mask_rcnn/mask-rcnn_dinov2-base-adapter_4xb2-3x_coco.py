"""Mask R-CNN with DINOv2-B, registers, ViT-Adapter: not run by us, no paper's figure.

tools/dist_train.sh configs/mask_rcnn/mask-rcnn_dinov2-base-adapter_4xb2-3x_coco.py 4
"""

_base_ = [
    '../_base_/models/mask_rcnn_timm.py',
    '../_base_/datasets/coco_instance.py',
    '../_base_/schedules/adamw_3x.py',
    '../_base_/default_runtime.py',
]
name = 'vit_base_patch14_reg4_dinov2.lvd142m'
model = dict(
    backbone=dict(vit=dict(model_name=name), init_cfg=dict(checkpoint=f'hf-hub:timm/{name}')),
    neck=dict(in_channels=[768] * 4),
)
optim_wrapper = dict(paramwise_cfg=_base_.timm_decay)

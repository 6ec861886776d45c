"""Mask R-CNN with MAE-B, ViT-Adapter: not run by us, no paper's figure.

tools/dist_train.sh configs/detection/mask-rcnn_mae-base-adapter_4xb2-3x_coco.py 4
"""

_base_ = './mask-rcnn_dinov2-small-adapter_4xb2-3x_coco.py'

embed_dims = 768
model = dict(
    backbone=dict(
        vit=dict(model_name='vit_base_patch16_224.mae'),
        init_cfg=dict(checkpoint='hf-hub:timm/vit_base_patch16_224.mae'),
    ),
    neck=dict(in_channels=[embed_dims] * 4),
)

"""Mask R-CNN with EVA-02-S, ViT-Adapter: not run by us, no paper's figure.

tools/dist_train.sh configs/detection/mask-rcnn_eva02-small-adapter_4xb2-3x_coco.py 4
"""

_base_ = './mask-rcnn_dinov2-small-adapter_4xb2-3x_coco.py'

model = dict(
    data_preprocessor=_base_.clip,
    backbone=dict(
        vit=dict(model_name='eva02_small_patch14_224.mim_in22k'),
        init_cfg=dict(checkpoint='hf-hub:timm/eva02_small_patch14_224.mim_in22k'),
    ),
)

"""Segmenter with DINOv3-S, trained: not run by us, no paper's figure.

tools/dist_train.sh configs/segmenter/segmenter_dinov3-small_4xb2-160k_ade20k.py 4
"""

_base_ = [
    '../_base_/models/segmenter_timm.py',
    '../_base_/datasets/ade20k.py',
    '../_base_/schedules/sgd_160k.py',
    '../_base_/default_runtime.py',
]
name = 'vit_small_patch16_dinov3.lvd1689m'
model = dict(backbone=dict(model_name=name, init_cfg=dict(checkpoint=f'hf-hub:timm/{name}')))

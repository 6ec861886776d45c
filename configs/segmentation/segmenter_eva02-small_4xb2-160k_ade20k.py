"""Segmenter with EVA-02-S, trained: not run by us, no paper's figure.

tools/dist_train.sh configs/segmentation/segmenter_eva02-small_4xb2-160k_ade20k.py 4
"""

_base_ = './segmenter_dinov2-small_4xb2-160k_ade20k.py'

model = dict(
    data_preprocessor=_base_.clip,
    backbone=dict(
        model_name='eva02_small_patch14_224.mim_in22k',
        init_cfg=dict(checkpoint='hf-hub:timm/eva02_small_patch14_224.mim_in22k'),
    ),
)

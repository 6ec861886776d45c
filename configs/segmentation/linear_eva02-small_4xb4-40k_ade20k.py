"""A linear head with EVA-02-S, frozen: not run by us, no paper's figure.

tools/dist_train.sh configs/segmentation/linear_eva02-small_4xb4-40k_ade20k.py 4
"""

_base_ = './linear_dinov2-small_4xb4-40k_ade20k.py'

model = dict(
    data_preprocessor=_base_.clip,
    backbone=dict(
        model_name='eva02_small_patch14_224.mim_in22k',
        init_cfg=dict(checkpoint='hf-hub:timm/eva02_small_patch14_224.mim_in22k'),
    ),
)

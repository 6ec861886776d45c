"""A linear head with DINOv3-S, frozen: not run by us, no paper's figure.

tools/dist_train.sh configs/segmentation/linear_dinov3-small_4xb4-40k_ade20k.py 4
"""

_base_ = './linear_dinov2-small_4xb4-40k_ade20k.py'

model = dict(
    backbone=dict(
        model_name='vit_small_patch16_dinov3.lvd1689m',
        init_cfg=dict(checkpoint='hf-hub:timm/vit_small_patch16_dinov3.lvd1689m'),
    ),
)

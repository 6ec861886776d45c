"""A linear head with DINOv3-S, frozen: not run by us, no paper's figure.

tools/dist_train.sh configs/linear/linear_dinov3-small_4xb4-40k_ade20k.py 4
"""

_base_ = [
    '../_base_/models/linear_timm.py',
    '../_base_/datasets/ade20k.py',
    '../_base_/schedules/linear_40k.py',
    '../_base_/default_runtime.py',
]
name = 'vit_small_patch16_dinov3.lvd1689m'
model = dict(backbone=dict(model_name=name, init_cfg=dict(checkpoint=f'hf-hub:timm/{name}')))
train_dataloader = dict(batch_size=4)

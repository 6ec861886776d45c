"""A linear head with DINOv2-B, registers, frozen: not run by us, no paper's figure.

tools/dist_train.sh configs/linear/linear_dinov2-base_4xb4-40k_ade20k.py 4
"""

_base_ = [
    '../_base_/models/linear_timm.py',
    '../_base_/datasets/ade20k.py',
    '../_base_/schedules/linear_40k.py',
    '../_base_/default_runtime.py',
]
name = 'vit_base_patch14_reg4_dinov2.lvd142m'
model = dict(
    backbone=dict(model_name=name, init_cfg=dict(checkpoint=f'hf-hub:timm/{name}')),
    decode_head=dict(in_channels=768, channels=768),
)
train_dataloader = dict(batch_size=4)

"""UperNet with AugReg-B, ViT-Adapter: not run by us, no paper's figure.

tools/dist_train.sh configs/upernet/upernet_augreg-base-adapter_4xb2-160k_ade20k.py 4
"""

_base_ = [
    '../_base_/models/upernet_timm.py',
    '../_base_/datasets/ade20k.py',
    '../_base_/schedules/adamw_160k.py',
    '../_base_/default_runtime.py',
]
name = 'vit_base_patch16_224.augreg_in21k'
model = dict(
    data_preprocessor=dict(mean=[127.5] * 3, std=[127.5] * 3),
    backbone=dict(vit=dict(model_name=name), init_cfg=dict(checkpoint=f'hf-hub:timm/{name}')),
    decode_head=dict(in_channels=[768] * 4),
    auxiliary_head=dict(in_channels=768),
)
optim_wrapper = dict(paramwise_cfg=_base_.timm_decay)

"""UperNet with EVA-02-S, ViT-Adapter: not run by us, no paper's figure.

tools/dist_train.sh configs/upernet/upernet_eva02-small-adapter_4xb2-160k_ade20k.py 4
"""

_base_ = [
    '../_base_/models/upernet_timm.py',
    '../_base_/datasets/ade20k.py',
    '../_base_/schedules/adamw_160k.py',
    '../_base_/default_runtime.py',
]
name = 'eva02_small_patch14_224.mim_in22k'
model = dict(
    data_preprocessor=dict(mean=[122.7709, 116.746, 104.0937], std=[68.5005, 66.6322, 70.3232]),
    backbone=dict(vit=dict(model_name=name), init_cfg=dict(checkpoint=f'hf-hub:timm/{name}')),
)
optim_wrapper = dict(paramwise_cfg=_base_.timm_decay)

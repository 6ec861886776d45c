"""UperNet with DINOv3-B, the adapter reads it frozen: not run by us, no paper's figure.

tools/dist_train.sh configs/upernet/upernet_dinov3-base-adapter_4xb2-160k_ade20k.py 4
"""

_base_ = [
    '../_base_/models/upernet_timm.py',
    '../_base_/datasets/ade20k.py',
    '../_base_/schedules/adamw_160k.py',
    '../_base_/default_runtime.py',
]
name = 'vit_base_patch16_dinov3.lvd1689m'
model = dict(
    backbone=dict(
        vit=dict(model_name=name, drop_path_rate=0.0, frozen=True),
        mode='read-only',
        init_cfg=dict(checkpoint=f'hf-hub:timm/{name}'),
    ),
    decode_head=dict(in_channels=[768] * 4),
    auxiliary_head=dict(in_channels=768),
)
optim_wrapper = dict(paramwise_cfg=_base_.timm_decay)

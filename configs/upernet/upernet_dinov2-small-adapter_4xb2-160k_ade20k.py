"""UperNet with DINOv2-S, registers, ViT-Adapter: not run by us, no paper's figure.

tools/dist_train.sh configs/upernet/upernet_dinov2-small-adapter_4xb2-160k_ade20k.py 4
"""

_base_ = [
    '../_base_/models/upernet_timm.py',
    '../_base_/datasets/ade20k.py',
    '../_base_/schedules/adamw_160k.py',
    '../_base_/default_runtime.py',
]
optim_wrapper = dict(paramwise_cfg=_base_.timm_decay)

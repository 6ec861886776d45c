"""Mask2Former, ViT-Adapter-S, default PE: not run by us, no paper's figure.

tools/dist_train.sh configs/mask2former/mask2former_deit-small-adapter_8xb2-160k_ade20k.py 8
"""

_base_ = [
    '../_base_/models/mask2former_vit-adapter.py',
    '../_base_/datasets/ade20k.py',
    '../_base_/schedules/mask2former_160k.py',
    '../_base_/default_runtime.py',
]
optim_wrapper = dict(optimizer=dict(lr=3e-5), paramwise_cfg=dict(layer_decay_rate=0.95))

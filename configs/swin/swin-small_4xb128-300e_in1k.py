"""Swin-S on ImageNet-1K, default PE. Expect 82.81 % top-1 (the LaPE paper's); not run by us.

tools/dist_train.sh configs/swin/swin-small_4xb128-300e_in1k.py 4
"""

_base_ = [
    '../_base_/models/swin.py',
    '../_base_/datasets/imagenet_once.py',
    '../_base_/schedules/swin_300e.py',
    '../_base_/default_runtime.py',
]
model = dict(backbone=dict(arch='small', drop_path_rate=0.3, pe_type='learnable'))

"""DeiT-S on ImageNet-1K, default PE. Expect 80.00 % top-1 (the LaPE paper's; the DPN paper has 80.1); not run by us.

tools/dist_train.sh configs/deit/deit-small_4xb256-300e_in1k.py 4
"""

_base_ = [
    '../_base_/models/deit.py',
    '../_base_/datasets/imagenet.py',
    '../_base_/schedules/deit_300e.py',
    '../_base_/default_runtime.py',
]
model = dict(backbone=dict(arch='deit-small'), head=dict(in_channels=384))

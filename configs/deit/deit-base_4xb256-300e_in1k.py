"""DeiT-B on ImageNet-1K, default PE. Expect 81.64 % top-1 (the LaPE paper's; the DPN paper has 81.8); not run by us.

tools/dist_train.sh configs/deit/deit-base_4xb256-300e_in1k.py 4
"""

_base_ = [
    '../_base_/models/deit.py',
    '../_base_/datasets/imagenet.py',
    '../_base_/schedules/deit_300e.py',
    '../_base_/default_runtime.py',
]
model = dict(backbone=dict(arch='deit-base'), head=dict(in_channels=768))

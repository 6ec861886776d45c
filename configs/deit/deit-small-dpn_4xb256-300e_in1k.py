"""DeiT-S on ImageNet-1K, Dual PatchNorm. Expect 80.4 % top-1 (the DPN paper's); not run by us.

tools/dist_train.sh configs/deit/deit-small-dpn_4xb256-300e_in1k.py 4
"""

_base_ = [
    '../_base_/models/deit.py',
    '../_base_/datasets/imagenet.py',
    '../_base_/schedules/deit_300e.py',
    '../_base_/default_runtime.py',
]
model = dict(backbone=dict(arch='deit-small', patch_norm='dual'), head=dict(in_channels=384))

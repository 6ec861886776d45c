"""DeiT-B on ImageNet-1K, LaPE. Expect 81.97 % top-1 (the LaPE paper's); not run by us.

tools/dist_train.sh configs/deit/deit-base-lape_4xb256-300e_in1k.py 4
"""

_base_ = [
    '../_base_/models/deit.py',
    '../_base_/datasets/imagenet.py',
    '../_base_/schedules/deit_300e.py',
    '../_base_/default_runtime.py',
]
model = dict(backbone=dict(arch='deit-base', pe_joining='lape'), head=dict(in_channels=768))

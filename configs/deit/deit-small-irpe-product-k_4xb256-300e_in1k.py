"""DeiT-S on ImageNet-1K, product contextual iRPE on k. Expect 80.9 % top-1 (the iRPE paper's); not run by us.

tools/dist_train.sh configs/deit/deit-small-irpe-product-k_4xb256-300e_in1k.py 4
"""

_base_ = [
    '../_base_/models/deit.py',
    '../_base_/datasets/imagenet.py',
    '../_base_/schedules/deit_300e.py',
    '../_base_/default_runtime.py',
]
model = dict(backbone=dict(arch='deit-small', pe_type=['learnable', dict(type='irpe')]), head=dict(in_channels=384))

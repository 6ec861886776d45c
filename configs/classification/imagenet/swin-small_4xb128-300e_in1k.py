"""Swin-S on ImageNet-1K, default PE. Expect 82.81 % top-1 (the LaPE paper's); not run by us.

tools/dist_train.sh configs/classification/imagenet/swin-small_4xb128-300e_in1k.py 4
"""

_base_ = './swin-small-rpe_4xb128-300e_in1k.py'

model = dict(backbone=dict(pe_type='learnable'))

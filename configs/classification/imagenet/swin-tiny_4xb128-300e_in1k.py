"""Swin-T on ImageNet-1K, default PE. Expect 80.92 % top-1 (the LaPE paper's); not run by us.

tools/dist_train.sh configs/classification/imagenet/swin-tiny_4xb128-300e_in1k.py 4
"""

_base_ = './swin-tiny-rpe_4xb128-300e_in1k.py'

model = dict(backbone=dict(pe_type='learnable'))

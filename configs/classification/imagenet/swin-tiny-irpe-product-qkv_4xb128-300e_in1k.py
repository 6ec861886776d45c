"""Swin-T, product contextual iRPE on qkv for the bias table. Expect 81.9 % top-1 (the iRPE paper's); not run by us.

tools/dist_train.sh configs/classification/imagenet/swin-tiny-irpe-product-qkv_4xb128-300e_in1k.py 4
"""

_base_ = './swin-tiny-rpe_4xb128-300e_in1k.py'

model = dict(backbone=dict(pe_type=[dict(type='irpe', on='qkv')]))

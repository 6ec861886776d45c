"""Swin-T on ImageNet-1K, LaPE and relative bias. Expect 81.49 % top-1 (the LaPE paper's); not run by us.

tools/dist_train.sh configs/classification/imagenet/swin-tiny-lape-rpe_4xb128-300e_in1k.py 4
"""

_base_ = './swin-tiny-lape_4xb128-300e_in1k.py'

model = dict(backbone=dict(pe_type=['learnable', 'rpe']))

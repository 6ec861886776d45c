"""Swin-S on ImageNet-1K, LaPE. Expect 83.26 % top-1 (the LaPE paper's); not run by us.

tools/dist_train.sh configs/classification/imagenet/swin-small-lape_4xb128-300e_in1k.py 4
"""

_base_ = './swin-small_4xb128-300e_in1k.py'

model = dict(backbone=dict(pe_joining='lape'))

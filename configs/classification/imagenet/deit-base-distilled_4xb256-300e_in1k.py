"""Distilled DeiT-B, default PE. Expect 83.05 % top-1 (the LaPE paper's); not run by us.

tools/dist_train.sh configs/classification/imagenet/deit-base-distilled_4xb256-300e_in1k.py 4
"""

_base_ = './deit-tiny-distilled_4xb256-300e_in1k.py'

embed_dims = 768
model = dict(backbone=dict(arch='deit-base'), head=dict(in_channels=embed_dims))

"""Distilled DeiT-S, default PE. Expect 80.98 % top-1 (the LaPE paper's); not run by us.

tools/dist_train.sh configs/classification/imagenet/deit-small-distilled_4xb256-300e_in1k.py 4
"""

_base_ = './deit-tiny-distilled_4xb256-300e_in1k.py'

embed_dims = 384
model = dict(backbone=dict(arch='deit-small'), head=dict(in_channels=embed_dims))

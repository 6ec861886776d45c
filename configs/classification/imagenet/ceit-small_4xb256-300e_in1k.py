"""CeiT-S on ImageNet-1K, default PE. Expect 81.88 % top-1 (the LaPE paper's); not run by us.

tools/dist_train.sh configs/classification/imagenet/ceit-small_4xb256-300e_in1k.py 4
"""

_base_ = './ceit-tiny_4xb256-300e_in1k.py'

embed_dims = 384
model = dict(backbone=dict(arch='small'), head=dict(in_channels=embed_dims))

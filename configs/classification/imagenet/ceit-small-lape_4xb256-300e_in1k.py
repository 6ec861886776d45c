"""CeiT-S on ImageNet-1K, LaPE. Expect 82.12 % top-1 (the LaPE paper's); not run by us.

tools/dist_train.sh configs/classification/imagenet/ceit-small-lape_4xb256-300e_in1k.py 4
"""

_base_ = './ceit-small_4xb256-300e_in1k.py'

model = dict(backbone=dict(pe_joining='lape'))

"""DeiT-S on ImageNet-1K, LaPE. Expect 80.54 % top-1 (the LaPE paper's); not run by us.

tools/dist_train.sh configs/classification/imagenet/deit-small-lape_4xb256-300e_in1k.py 4
"""

_base_ = './deit-small_4xb256-300e_in1k.py'

model = dict(backbone=dict(pe_joining='lape'))

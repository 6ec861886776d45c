"""DeiT-B on ImageNet-1K, LaPE. Expect 81.97 % top-1 (the LaPE paper's); not run by us.

tools/dist_train.sh configs/classification/imagenet/deit-base-lape_4xb256-300e_in1k.py 4
"""

_base_ = './deit-base_4xb256-300e_in1k.py'

model = dict(backbone=dict(pe_joining='lape'))

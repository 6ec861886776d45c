"""DeiT-S on ImageNet-1K, product bias iRPE on k. Expect 80.05 % top-1 (the iRPE paper's); not run by us.

tools/dist_train.sh configs/classification/imagenet/deit-small-irpe-product-bias-k_4xb256-300e_in1k.py 4
"""

_base_ = './deit-small-irpe-product-k_4xb256-300e_in1k.py'

model = dict(backbone=dict(pe_type=['learnable', dict(type='irpe', mode='bias')]))

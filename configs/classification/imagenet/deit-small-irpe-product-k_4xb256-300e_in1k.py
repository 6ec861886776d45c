"""DeiT-S on ImageNet-1K, product contextual iRPE on k. Expect 80.9 % top-1 (the iRPE paper's); not run by us.

tools/dist_train.sh configs/classification/imagenet/deit-small-irpe-product-k_4xb256-300e_in1k.py 4
"""

_base_ = './deit-small_4xb256-300e_in1k.py'

model = dict(backbone=dict(pe_type=['learnable', dict(type='irpe')]))

"""DeiT-S on ImageNet-1K, quantization contextual iRPE on k. Expect 80.5 % top-1 (the iRPE paper's); not run by us.

tools/dist_train.sh configs/classification/imagenet/deit-small-irpe-quantization-k_4xb256-300e_in1k.py 4
"""

_base_ = './deit-small-irpe-product-k_4xb256-300e_in1k.py'

model = dict(backbone=dict(pe_type=['learnable', dict(type='irpe', method='quantization', ratio=33)]))

"""DeiT-S on ImageNet-1K, quantization bias iRPE on k. Expect 80.3 % top-1 (the iRPE paper's); not run by us.

tools/dist_train.sh configs/pretrain/irpe/deit-small-default-irpe-quantization-bias-k_4xb256-300e_in1k.py 4
"""

_base_ = './deit-small-default-irpe-product-k_4xb256-300e_in1k.py'

model = dict(backbone=dict(pe_type=['learnable', dict(type='irpe', method='quantization', mode='bias', ratio=33)]))

"""DeiT-B on ImageNet-1K, product contextual iRPE on qkv. The paper gives no figure; not run by us.

tools/dist_train.sh configs/classification/imagenet/deit-base-irpe-product-qkv_4xb256-300e_in1k.py 4
"""

_base_ = './deit-base-irpe-product-k_4xb256-300e_in1k.py'

model = dict(backbone=dict(pe_type=['learnable', dict(type='irpe', on='qkv')]))

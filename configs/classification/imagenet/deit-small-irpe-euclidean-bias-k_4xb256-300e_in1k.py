"""DeiT-S, euclidean bias iRPE on k, a table a head. Expect 80.1 % top-1 (the iRPE paper's); not run by us.

tools/dist_train.sh configs/classification/imagenet/deit-small-irpe-euclidean-bias-k_4xb256-300e_in1k.py 4
"""

_base_ = './deit-small-irpe-product-k_4xb256-300e_in1k.py'

per_head = dict(type='irpe', method='euclidean', mode='bias', ratio=20, share_heads=False)
model = dict(backbone=dict(pe_type=['learnable', per_head]))

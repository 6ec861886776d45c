"""T2T-ViT-7 on ImageNet-1K, LaPE. Expect 71.92 % top-1 (the LaPE paper's); not run by us.

tools/dist_train.sh configs/classification/imagenet/t2t-vit-7-lape_4xb256-310e_in1k.py 4
"""

_base_ = './t2t-vit-7_4xb256-310e_in1k.py'

model = dict(backbone=dict(pe_joining='lape'))

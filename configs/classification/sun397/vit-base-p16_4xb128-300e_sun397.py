"""ViT-B/16 on Sun397. Expect 45.6 % top-1 (the DPN paper's); not run by us.

tools/dist_train.sh configs/classification/sun397/vit-base-p16_4xb128-300e_sun397.py 4
"""

_base_ = './vit-base-p32_4xb128-300e_sun397.py'

model = dict(backbone=dict(patch_size=16))

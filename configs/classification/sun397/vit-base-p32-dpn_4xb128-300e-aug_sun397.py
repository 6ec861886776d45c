"""ViT-B/32 on Sun397, augmented, Dual PatchNorm. Expect 50.7 % top-1 (the DPN paper's); not run by us.

tools/dist_train.sh configs/classification/sun397/vit-base-p32-dpn_4xb128-300e-aug_sun397.py 4
"""

_base_ = './vit-base-p32_4xb128-300e-aug_sun397.py'

model = dict(backbone=dict(patch_norm='dual'))

"""ViT-B/16 on Sun397, augmented, longer, Dual PatchNorm. Expect 66.3 % top-1 (the DPN paper's); not run by us.

tools/dist_train.sh configs/classification/sun397/vit-base-p16-dpn_4xb128-600e-aug_sun397.py 4
"""

_base_ = './vit-base-p16_4xb128-600e-aug_sun397.py'

model = dict(backbone=dict(patch_norm='dual'))

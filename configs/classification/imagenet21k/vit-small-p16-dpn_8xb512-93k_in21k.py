"""ViT-S/16 on ImageNet-21k, Dual PatchNorm, 93k steps. Expect 65.0 % 25-shot (the DPN paper's); not run by us.

tools/dist_train.sh configs/classification/imagenet21k/vit-small-p16-dpn_8xb512-93k_in21k.py 8
"""

_base_ = './vit-small-p16_8xb512-93k_in21k.py'

model = dict(backbone=dict(patch_norm='dual'))

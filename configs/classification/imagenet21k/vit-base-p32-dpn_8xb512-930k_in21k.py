"""ViT-B/32 on ImageNet-21k, Dual PatchNorm, 930k steps. Expect 73.1 % 25-shot (the DPN paper's); not run by us.

tools/dist_train.sh configs/classification/imagenet21k/vit-base-p32-dpn_8xb512-930k_in21k.py 8
"""

_base_ = './vit-base-p32_8xb512-930k_in21k.py'

model = dict(backbone=dict(patch_norm='dual'))

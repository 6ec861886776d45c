"""ViT-B/16 on ImageNet-21k, Dual PatchNorm, 930k steps. Expect 78.4 % 25-shot (the DPN paper's); not run by us.

tools/dist_train.sh configs/pretrain/dpn/vit-base-p16-default-dpn_8xb512-930k_in21k.py 8
"""

_base_ = './vit-base-p16-default_8xb512-930k_in21k.py'

model = dict(backbone=dict(patch_norm='dual'))

"""ViT-S/32 on ImageNet-1K, Dual PatchNorm. Expect 74.0 % top-1 (the DPN paper's); not run by us.

tools/dist_train.sh configs/classification/imagenet/vit-small-p32-dpn_8xb512-93k_in1k.py 8
"""

_base_ = './vit-small-p32_8xb512-93k_in1k.py'

model = dict(backbone=dict(patch_norm='dual'))

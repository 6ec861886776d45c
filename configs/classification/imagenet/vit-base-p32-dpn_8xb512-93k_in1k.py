"""ViT-B/32 on ImageNet-1K, Dual PatchNorm. Expect 76.2 % top-1 (the DPN paper's); not run by us.

tools/dist_train.sh configs/classification/imagenet/vit-base-p32-dpn_8xb512-93k_in1k.py 8
"""

_base_ = './vit-base-p32_8xb512-93k_in1k.py'

model = dict(backbone=dict(patch_norm='dual'))

"""ViT-Ti/16 on ImageNet-1K, Dual PatchNorm. Expect 73.9 % top-1 (the DPN paper's); not run by us.

tools/dist_train.sh configs/classification/imagenet/vit-tiny-p16-dpn_8xb512-93k_in1k.py 8
"""

_base_ = './vit-tiny-p16_8xb512-93k_in1k.py'

model = dict(backbone=dict(patch_norm='dual'))

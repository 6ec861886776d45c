"""ViT-S/16+ on ImageNet-1K, Dual PatchNorm. Expect 80.2 % top-1 (the DPN paper's); not run by us.

tools/dist_train.sh configs/classification/imagenet/vit-small-p16-plus-dpn_8xb128-372k_in1k.py 8
"""

_base_ = './vit-small-p16-plus_8xb128-372k_in1k.py'

model = dict(backbone=dict(patch_norm='dual'))

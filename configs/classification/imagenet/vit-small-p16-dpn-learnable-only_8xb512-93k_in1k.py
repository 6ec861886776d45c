"""ViT-S/16, Table 6's learnable-only. Expect 0.9 points below Dual PatchNorm (the DPN paper's); not run by us.

tools/dist_train.sh configs/classification/imagenet/vit-small-p16-dpn-learnable-only_8xb512-93k_in1k.py 8
"""

_base_ = './vit-small-p16_8xb512-93k_in1k.py'

model = dict(backbone=dict(patch_norm='learnable-only'))

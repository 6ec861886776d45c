"""ViT-S/32, Table 6's learnable-only. Expect 1.6 points below Dual PatchNorm (the DPN paper's); not run by us.

tools/dist_train.sh configs/classification/imagenet/vit-small-p32-dpn-learnable-only_8xb512-93k_in1k.py 8
"""

_base_ = './vit-small-p32_8xb512-93k_in1k.py'

model = dict(backbone=dict(patch_norm='learnable-only'))

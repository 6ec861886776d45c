"""ViT-S/32, Table 6's pre. Expect 0.2 points below Dual PatchNorm (the DPN paper's); not run by us.

tools/dist_train.sh configs/classification/imagenet/vit-small-p32-dpn-pre_8xb512-93k_in1k.py 8
"""

_base_ = './vit-small-p32_8xb512-93k_in1k.py'

model = dict(backbone=dict(patch_norm='pre'))

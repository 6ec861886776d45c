"""ViT-Ti/16, Table 6's pre. Expect 0.3 points below Dual PatchNorm (the DPN paper's); not run by us.

tools/dist_train.sh configs/classification/imagenet/vit-tiny-p16-dpn-pre_8xb512-93k_in1k.py 8
"""

_base_ = './vit-tiny-p16_8xb512-93k_in1k.py'

model = dict(backbone=dict(patch_norm='pre'))

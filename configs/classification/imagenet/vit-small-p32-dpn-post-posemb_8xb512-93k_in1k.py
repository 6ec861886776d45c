"""ViT-S/32, Table 6's post-posemb. Expect 0.9 points below Dual PatchNorm (the DPN paper's); not run by us.

tools/dist_train.sh configs/classification/imagenet/vit-small-p32-dpn-post-posemb_8xb512-93k_in1k.py 8
"""

_base_ = './vit-small-p32_8xb512-93k_in1k.py'

model = dict(backbone=dict(patch_norm='post-posemb'))

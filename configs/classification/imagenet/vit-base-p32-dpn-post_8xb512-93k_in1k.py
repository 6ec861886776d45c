"""ViT-B/32, Table 6's post. Expect 0.5 points below Dual PatchNorm (the DPN paper's); not run by us.

tools/dist_train.sh configs/classification/imagenet/vit-base-p32-dpn-post_8xb512-93k_in1k.py 8
"""

_base_ = './vit-base-p32_8xb512-93k_in1k.py'

model = dict(backbone=dict(patch_norm='post'))

"""ViT-B/16, Table 6's rms. Expect 0.0 points below Dual PatchNorm (the DPN paper's); not run by us.

tools/dist_train.sh configs/classification/imagenet/vit-base-p16-dpn-rms_8xb512-93k_in1k.py 8
"""

_base_ = './vit-base-p16_8xb512-93k_in1k.py'

model = dict(backbone=dict(patch_norm='rms'))

"""DeiT-S on ImageNet-1K, Dual PatchNorm. Expect 80.4 % top-1 (the DPN paper's); not run by us.

tools/dist_train.sh configs/classification/imagenet/deit-small-dpn_4xb256-300e_in1k.py 4
"""

_base_ = './deit-small_4xb256-300e_in1k.py'

model = dict(backbone=dict(patch_norm='dual'))

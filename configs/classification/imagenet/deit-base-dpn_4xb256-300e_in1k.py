"""DeiT-B on ImageNet-1K, Dual PatchNorm. Expect 82.0 % top-1 (the DPN paper's); not run by us.

tools/dist_train.sh configs/classification/imagenet/deit-base-dpn_4xb256-300e_in1k.py 4
"""

_base_ = './deit-base_4xb256-300e_in1k.py'

model = dict(backbone=dict(patch_norm='dual'))

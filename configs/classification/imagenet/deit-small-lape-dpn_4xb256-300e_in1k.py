"""DeiT-S on ImageNet-1K, LaPE and Dual PatchNorm. The papers give no figure for it; not run by us.

tools/dist_train.sh configs/classification/imagenet/deit-small-lape-dpn_4xb256-300e_in1k.py 4
"""

_base_ = './deit-small-lape_4xb256-300e_in1k.py'

model = dict(backbone=dict(patch_norm='dual'))

"""DeiT-S on ImageNet-1K, Dual PatchNorm. Expect 80.4 % top-1 (the DPN paper's); not run by us.

tools/dist_train.sh configs/pretrain/deit-small-default-dpn_4xb256-300e_in1k.py 4
"""

_base_ = './deit-small-default_4xb256-300e_in1k.py'

model = dict(backbone=dict(patch_norm='dual'))

"""DeiT-Ti on ImageNet-1K, Dual PatchNorm. The papers give no figure for it; not run by us.

tools/dist_train.sh configs/deit/deit-tiny-dpn_4xb256-300e_in1k.py 4
"""

_base_ = [
    '../_base_/models/deit.py',
    '../_base_/datasets/imagenet.py',
    '../_base_/schedules/deit_300e.py',
    '../_base_/default_runtime.py',
]
model = dict(backbone=dict(patch_norm='dual'))

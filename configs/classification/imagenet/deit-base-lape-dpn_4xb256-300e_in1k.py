"""DeiT-B on ImageNet-1K, LaPE and Dual PatchNorm. The papers give no figure for it; not run by us.

tools/dist_train.sh configs/classification/imagenet/deit-base-lape-dpn_4xb256-300e_in1k.py 4
"""

_base_ = [
    '../../_base_/models/deit.py',
    '../../_base_/datasets/imagenet.py',
    '../../_base_/schedules/deit_300e.py',
]
model = dict(
    backbone=dict(**_base_.sizes.base.backbone, pe_joining='lape', patch_norm='dual'), head=_base_.sizes.base.head
)

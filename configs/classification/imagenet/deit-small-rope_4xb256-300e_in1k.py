"""DeiT-S on ImageNet-1K, axial rotary encoding alone. No paper's figure with this recipe; not run by us.

tools/dist_train.sh configs/classification/imagenet/deit-small-rope_4xb256-300e_in1k.py 4
"""

_base_ = [
    '../../_base_/models/deit.py',
    '../../_base_/datasets/imagenet.py',
    '../../_base_/schedules/deit_300e.py',
]
model = dict(backbone=dict(**_base_.sizes.small.backbone, pe_type='rope'), head=_base_.sizes.small.head)

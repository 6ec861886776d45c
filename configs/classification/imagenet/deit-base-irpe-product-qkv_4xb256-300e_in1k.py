"""DeiT-B on ImageNet-1K, product contextual iRPE on qkv. The paper gives no figure; not run by us.

tools/dist_train.sh configs/classification/imagenet/deit-base-irpe-product-qkv_4xb256-300e_in1k.py 4
"""

_base_ = [
    '../../_base_/models/deit.py',
    '../../_base_/datasets/imagenet.py',
    '../../_base_/schedules/deit_300e.py',
]
model = dict(
    backbone=dict(**_base_.sizes.base.backbone, pe_type=['learnable', dict(type='irpe', on='qkv')]),
    head=_base_.sizes.base.head,
)

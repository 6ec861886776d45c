"""CeiT-S on ImageNet-1K, default PE. Expect 81.88 % top-1 (the LaPE paper's); not run by us.

tools/dist_train.sh configs/ceit/ceit-small_4xb256-300e_in1k.py 4
"""

_base_ = [
    '../_base_/models/ceit.py',
    '../_base_/datasets/imagenet.py',
    '../_base_/schedules/deit_300e.py',
    '../_base_/default_runtime.py',
]
model = dict(backbone=dict(arch='small'), head=dict(in_channels=384))
custom_hooks = [dict(type='mmlape.KeptEMAHook', momentum=4e-5, update_buffers=True), *_base_.custom_hooks]

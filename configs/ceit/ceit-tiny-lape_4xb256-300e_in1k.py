"""CeiT-Ti on ImageNet-1K, LaPE. Expect 76.87 % top-1 (the LaPE paper's); not run by us.

tools/dist_train.sh configs/ceit/ceit-tiny-lape_4xb256-300e_in1k.py 4
"""

_base_ = [
    '../_base_/models/ceit.py',
    '../_base_/datasets/imagenet.py',
    '../_base_/schedules/deit_300e.py',
    '../_base_/default_runtime.py',
]
model = dict(backbone=dict(pe_joining='lape'))
custom_hooks = [dict(type='mmlape.KeptEMAHook', momentum=4e-5, update_buffers=True), *_base_.custom_hooks]

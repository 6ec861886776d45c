"""ViT-Lite-7/4 on CIFAR-10, LaPE. Expect 94.290 % top-1 (the LaPE paper's); not run by us.

mmlape train configs/compact/vit-lite-7-4-lape_1xb128-310e_cifar10.py
"""

_base_ = [
    '../_base_/models/compact.py',
    '../_base_/datasets/cifar10_randaugment.py',
    '../_base_/schedules/compact_310e.py',
    '../_base_/default_runtime.py',
]
model = dict(backbone=dict(arch='vit-lite-7/4', pe_joining='lape'))
train_dataloader = dict(dataset=dict(pipeline=_base_.erased_pipeline))

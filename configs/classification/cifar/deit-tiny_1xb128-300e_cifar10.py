"""DeiT-Ti with patches of 4 on CIFAR-10, default PE; not run by us.

tools/train.py configs/classification/cifar/deit-tiny_1xb128-300e_cifar10.py
"""

_base_ = [
    '../../_base_/models/deit.py',
    '../../_base_/datasets/cifar10.py',
    '../../_base_/schedules/cifar_300e.py',
]
model = dict(
    data_preprocessor=dict(num_classes=_base_.num_classes),
    backbone=dict(img_size=_base_.img_size, patch_size=4),
    head=dict(num_classes=_base_.num_classes),
)

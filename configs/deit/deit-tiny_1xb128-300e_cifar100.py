"""DeiT-Ti with patches of 4 on CIFAR-100, default PE; not run by us.

mmlape train configs/deit/deit-tiny_1xb128-300e_cifar100.py
"""

_base_ = [
    '../_base_/models/deit_cifar.py',
    '../_base_/datasets/cifar100.py',
    '../_base_/schedules/cifar_300e.py',
    '../_base_/default_runtime.py',
]
model = dict(data_preprocessor=dict(num_classes=100), head=dict(num_classes=100))
optim_wrapper = dict(optimizer=dict(lr=6e-4))  # LaPE's Table I has a rate for each of the two datasets

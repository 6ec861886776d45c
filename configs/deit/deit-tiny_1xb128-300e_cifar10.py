"""DeiT-Ti with patches of 4 on CIFAR-10, default PE; not run by us.

mmlape train configs/deit/deit-tiny_1xb128-300e_cifar10.py
"""

_base_ = [
    '../_base_/models/deit_cifar.py',
    '../_base_/datasets/cifar10.py',
    '../_base_/schedules/cifar_300e.py',
    '../_base_/default_runtime.py',
]

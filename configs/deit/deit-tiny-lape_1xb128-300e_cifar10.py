"""DeiT-Ti with patches of 4 on CIFAR-10, LaPE; not run by us.

mmlape train configs/deit/deit-tiny-lape_1xb128-300e_cifar10.py
"""

_base_ = [
    '../_base_/models/deit_cifar.py',
    '../_base_/datasets/cifar10.py',
    '../_base_/schedules/cifar_300e.py',
    '../_base_/default_runtime.py',
]
model = dict(backbone=dict(pe_joining='lape'))

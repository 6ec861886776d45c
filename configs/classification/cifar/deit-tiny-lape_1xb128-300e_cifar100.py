"""DeiT-Ti with patches of 4 on CIFAR-100, LaPE; not run by us.

tools/train.py configs/classification/cifar/deit-tiny-lape_1xb128-300e_cifar100.py
"""

_base_ = './deit-tiny_1xb128-300e_cifar100.py'

model = dict(backbone=dict(pe_joining='lape'))

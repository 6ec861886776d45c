"""DeiT-Ti with patches of 4 on CIFAR-10, LaPE; not run by us.

tools/train.py configs/classification/cifar/deit-tiny-lape_1xb128-300e_cifar10.py
"""

_base_ = './deit-tiny_1xb128-300e_cifar10.py'

model = dict(backbone=dict(pe_joining='lape'))

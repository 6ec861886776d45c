"""DeiT-Ti with patches of 4 on CIFAR-10, LaPE; not run by us.

tools/train.py configs/pretrain/deit-tiny-lape_1xb128-300e_cifar10.py
"""

_base_ = './deit-tiny-default_1xb128-300e_cifar10.py'

model = dict(backbone=dict(pe_joining='lape'))

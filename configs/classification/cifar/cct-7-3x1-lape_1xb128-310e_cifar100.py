"""CCT-7/3x1 on CIFAR-100, LaPE. Expect 81.986 % top-1 (the LaPE paper's); not run by us.

tools/train.py configs/classification/cifar/cct-7-3x1-lape_1xb128-310e_cifar100.py
"""

_base_ = './cct-7-3x1_1xb128-310e_cifar100.py'

model = dict(backbone=dict(pe_joining='lape'))

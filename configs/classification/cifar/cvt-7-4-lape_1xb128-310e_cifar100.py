"""CVT-7/4 on CIFAR-100, LaPE. Expect 78.052 % top-1 (the LaPE paper's); not run by us.

tools/train.py configs/classification/cifar/cvt-7-4-lape_1xb128-310e_cifar100.py
"""

_base_ = './cvt-7-4_1xb128-310e_cifar100.py'

model = dict(backbone=dict(pe_joining='lape'))

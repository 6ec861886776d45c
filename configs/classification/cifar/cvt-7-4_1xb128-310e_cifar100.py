"""CVT-7/4 on CIFAR-100, default PE. Expect 77.452 % top-1 (the LaPE paper's); not run by us.

tools/train.py configs/classification/cifar/cvt-7-4_1xb128-310e_cifar100.py
"""

_base_ = './cct-7-3x1_1xb128-310e_cifar100.py'

model = dict(backbone=dict(arch='cvt-7/4'))

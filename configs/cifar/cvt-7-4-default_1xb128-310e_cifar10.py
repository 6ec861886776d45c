"""CVT-7/4 on CIFAR-10, default PE. Expect 94.302 % top-1 (the LaPE paper's); not run by us.

tools/train.py configs/cifar/cvt-7-4-default_1xb128-310e_cifar10.py
"""

_base_ = './cct-7-3x1-default_1xb128-310e_cifar10.py'

model = dict(backbone=dict(arch='cvt-7/4'))

"""CCT-7/3x1 on CIFAR-10, LaPE. Expect 96.530 % top-1 (the LaPE paper's); not run by us.

tools/train.py configs/classification/cifar/cct-7-3x1-lape_1xb128-310e_cifar10.py
"""

_base_ = './cct-7-3x1_1xb128-310e_cifar10.py'

model = dict(backbone=dict(pe_joining='lape'))

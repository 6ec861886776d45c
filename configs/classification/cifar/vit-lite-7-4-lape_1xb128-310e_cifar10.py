"""ViT-Lite-7/4 on CIFAR-10, LaPE. Expect 94.290 % top-1 (the LaPE paper's); not run by us.

tools/train.py configs/classification/cifar/vit-lite-7-4-lape_1xb128-310e_cifar10.py
"""

_base_ = './vit-lite-7-4_1xb128-310e_cifar10.py'

model = dict(backbone=dict(pe_joining='lape'))

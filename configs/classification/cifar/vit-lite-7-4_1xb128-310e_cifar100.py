"""ViT-Lite-7/4 on CIFAR-100, default PE. Expect 74.984 % top-1 (the LaPE paper's); not run by us.

tools/train.py configs/classification/cifar/vit-lite-7-4_1xb128-310e_cifar100.py
"""

_base_ = './cct-7-3x1_1xb128-310e_cifar100.py'

model = dict(backbone=dict(arch='vit-lite-7/4'))

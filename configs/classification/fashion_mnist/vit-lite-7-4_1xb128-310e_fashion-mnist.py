"""ViT-Lite-7/4 on Fashion-MNIST, default PE; not run by us, no paper's figure.

tools/train.py configs/classification/fashion_mnist/vit-lite-7-4_1xb128-310e_fashion-mnist.py
"""

_base_ = './cct-7-3x1_1xb128-310e_fashion-mnist.py'

model = dict(backbone=dict(arch='vit-lite-7/4'))

"""ViT-Lite-7/4 on Fashion-MNIST, LaPE; not run by us, no paper's figure.

tools/train.py configs/classification/fashion_mnist/vit-lite-7-4-lape_1xb128-310e_fashion-mnist.py
"""

_base_ = './vit-lite-7-4_1xb128-310e_fashion-mnist.py'

model = dict(backbone=dict(pe_joining='lape'))

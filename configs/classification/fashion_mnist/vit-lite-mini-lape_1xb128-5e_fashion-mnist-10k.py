"""A small ViT-Lite on 10,000 images of Fashion-MNIST, LaPE; ours: docs/results/fashion-mnist.md.

tools/train.py configs/classification/fashion_mnist/vit-lite-mini-lape_1xb128-5e_fashion-mnist-10k.py
"""

_base_ = './vit-lite-mini_1xb128-5e_fashion-mnist-10k.py'

model = dict(backbone=dict(pe_joining='lape'))

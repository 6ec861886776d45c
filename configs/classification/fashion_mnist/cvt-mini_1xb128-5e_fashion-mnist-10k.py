"""A small CVT on 10,000 images of Fashion-MNIST, default PE; ours: docs/results/fashion-mnist.md.

tools/train.py configs/classification/fashion_mnist/cvt-mini_1xb128-5e_fashion-mnist-10k.py
"""

_base_ = './vit-lite-mini_1xb128-5e_fashion-mnist-10k.py'

model = dict(backbone=dict(arch=dict(pooling='sequence_pool')))

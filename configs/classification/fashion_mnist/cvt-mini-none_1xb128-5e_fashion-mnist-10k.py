"""A small CVT on 10,000 images of Fashion-MNIST, no PE; ours: docs/results/fashion-mnist.md.

tools/train.py configs/classification/fashion_mnist/cvt-mini-none_1xb128-5e_fashion-mnist-10k.py
"""

_base_ = './cvt-mini_1xb128-5e_fashion-mnist-10k.py'

model = dict(backbone=dict(pe_type='none'))

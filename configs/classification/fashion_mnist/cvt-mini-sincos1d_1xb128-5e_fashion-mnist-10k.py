"""A small CVT on 10,000 images of Fashion-MNIST, default PE, 1-D sinusoids; ours: docs/results/fashion-mnist.md.

tools/train.py configs/classification/fashion_mnist/cvt-mini-sincos1d_1xb128-5e_fashion-mnist-10k.py
"""

_base_ = './cvt-mini_1xb128-5e_fashion-mnist-10k.py'

model = dict(backbone=dict(pe_type='sincos1d'))

"""A small CVT on 10,000 images of Fashion-MNIST, default PE, 2-D sinusoids; ours: docs/results/fashion-mnist.md.

tools/train.py configs/classification/fashion_mnist/cvt-mini-sincos2d_1xb128-5e_fashion-mnist-10k.py
"""

_base_ = './cvt-mini_1xb128-5e_fashion-mnist-10k.py'

model = dict(backbone=dict(pe_type='sincos2d'))

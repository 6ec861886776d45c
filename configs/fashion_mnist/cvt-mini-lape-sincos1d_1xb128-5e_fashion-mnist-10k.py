"""A small CVT on 10,000 images of Fashion-MNIST, LaPE, 1-D sinusoids; ours: docs/results/fashion-mnist.md.

tools/train.py configs/fashion_mnist/cvt-mini-lape-sincos1d_1xb128-5e_fashion-mnist-10k.py
"""

_base_ = './cvt-mini-lape_1xb128-5e_fashion-mnist-10k.py'

model = dict(backbone=dict(pe_type='sincos1d'))

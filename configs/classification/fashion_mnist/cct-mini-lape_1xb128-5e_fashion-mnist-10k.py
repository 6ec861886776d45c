"""A small CCT on 10,000 images of Fashion-MNIST, LaPE; ours: docs/results/fashion-mnist.md.

tools/train.py configs/classification/fashion_mnist/cct-mini-lape_1xb128-5e_fashion-mnist-10k.py
"""

_base_ = './cct-mini_1xb128-5e_fashion-mnist-10k.py'

model = dict(backbone=dict(pe_joining='lape'))

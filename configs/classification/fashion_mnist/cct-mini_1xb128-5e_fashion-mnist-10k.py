"""A small CCT on 10,000 images of Fashion-MNIST, default PE; ours: docs/results/fashion-mnist.md.

tools/train.py configs/classification/fashion_mnist/cct-mini_1xb128-5e_fashion-mnist-10k.py
"""

_base_ = './cvt-mini_1xb128-5e_fashion-mnist-10k.py'

tokenizer = dict(_delete_=True, type='conv', kernel_size=7, num_convs=1)
model = dict(backbone=dict(arch=dict(tokenizer=tokenizer)))

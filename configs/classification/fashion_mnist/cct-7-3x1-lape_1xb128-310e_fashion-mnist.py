"""CCT-7/3x1 on Fashion-MNIST, LaPE; not run by us, no paper's figure.

tools/train.py configs/classification/fashion_mnist/cct-7-3x1-lape_1xb128-310e_fashion-mnist.py
"""

_base_ = './cct-7-3x1_1xb128-310e_fashion-mnist.py'

model = dict(backbone=dict(pe_joining='lape'))

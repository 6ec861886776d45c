"""A small ViT on 10,000 images of Fashion-MNIST, Dual PatchNorm; ours: docs/results/dpn.md.

tools/train.py configs/classification/fashion_mnist/vit-mini-dpn_1xb128-5e_fashion-mnist-10k.py
"""

_base_ = './vit-mini_1xb128-5e_fashion-mnist-10k.py'

model = dict(backbone=dict(patch_norm='dual'))

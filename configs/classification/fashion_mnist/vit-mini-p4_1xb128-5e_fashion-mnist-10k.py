"""ViT of 7 x 7 patches, 10,000 images of Fashion-MNIST, default PE; ours: docs/results/position.md.

tools/train.py configs/classification/fashion_mnist/vit-mini-p4_1xb128-5e_fashion-mnist-10k.py
"""

_base_ = './vit-mini_1xb128-5e_fashion-mnist-10k.py'

model = dict(backbone=dict(patch_size=4))

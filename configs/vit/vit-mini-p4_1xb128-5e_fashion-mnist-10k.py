"""ViT of 7 x 7 patches, 10,000 images of Fashion-MNIST, default PE; ours: docs/results/position.md.

mmlape train configs/vit/vit-mini-p4_1xb128-5e_fashion-mnist-10k.py
"""

_base_ = [
    '../_base_/models/vit_mini.py',
    '../_base_/datasets/fashion_mnist.py',
    '../_base_/schedules/fashion_mnist_mini.py',
    '../_base_/default_runtime.py',
]
model = dict(backbone=dict(patch_size=4))
train_dataloader = dict(dataset=dict(indices=10000))

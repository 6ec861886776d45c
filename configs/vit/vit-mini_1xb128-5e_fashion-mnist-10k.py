"""A small ViT on 10,000 images of Fashion-MNIST, no norm in its stem; ours: docs/results/dpn.md.

mmlape train configs/vit/vit-mini_1xb128-5e_fashion-mnist-10k.py
"""

_base_ = [
    '../_base_/models/vit_mini.py',
    '../_base_/datasets/fashion_mnist.py',
    '../_base_/schedules/fashion_mnist_mini.py',
    '../_base_/default_runtime.py',
]
train_dataloader = dict(dataset=dict(indices=10000))

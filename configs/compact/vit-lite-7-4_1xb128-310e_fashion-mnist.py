"""ViT-Lite-7/4 on Fashion-MNIST, default PE; not run by us, no paper's figure.

mmlape train configs/compact/vit-lite-7-4_1xb128-310e_fashion-mnist.py
"""

_base_ = [
    '../_base_/models/compact.py',
    '../_base_/datasets/fashion_mnist.py',
    '../_base_/schedules/compact_310e.py',
    '../_base_/default_runtime.py',
]
model = dict(
    data_preprocessor=dict(mean=[72.94], std=[90.02]), backbone=dict(in_channels=1, img_size=28, arch='vit-lite-7/4')
)

"""CCT-7/3x1 on Fashion-MNIST, default PE; not run by us, no paper's figure.

mmlape train configs/compact/cct-7-3x1_1xb128-310e_fashion-mnist.py
"""

_base_ = [
    '../_base_/models/compact.py',
    '../_base_/datasets/fashion_mnist.py',
    '../_base_/schedules/compact_310e.py',
    '../_base_/default_runtime.py',
]
model = dict(data_preprocessor=dict(mean=[72.94], std=[90.02]), backbone=dict(in_channels=1, img_size=28))

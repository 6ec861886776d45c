"""CVT-7/4 on Fashion-MNIST, default PE; not run by us, no paper's figure.

mmlape train configs/compact/cvt-7-4_1xb128-310e_fashion-mnist.py
"""

_base_ = [
    '../_base_/models/compact.py',
    '../_base_/datasets/fashion_mnist.py',
    '../_base_/schedules/compact_310e.py',
    '../_base_/default_runtime.py',
]
model = dict(
    data_preprocessor=_base_.normalisation,
    backbone=dict(**_base_.grey, arch='cvt-7/4'),
    train_cfg=dict(augments=_base_.augments),
)

"""CVT-7/4 on Fashion-MNIST, LaPE; not run by us, no paper's figure.

tools/train.py configs/classification/fashion_mnist/cvt-7-4-lape_1xb128-310e_fashion-mnist.py
"""

_base_ = [
    '../../_base_/models/compact.py',
    '../../_base_/datasets/fashion_mnist.py',
    '../../_base_/schedules/compact_310e.py',
]
model = dict(
    data_preprocessor=_base_.normalisation,
    backbone=dict(**_base_.grey, arch='cvt-7/4', pe_joining='lape'),
    train_cfg=dict(augments=_base_.augments),
)

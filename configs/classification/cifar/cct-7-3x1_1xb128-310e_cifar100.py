"""CCT-7/3x1 on CIFAR-100, default PE. Expect 80.928 % top-1 (the LaPE paper's); not run by us.

tools/train.py configs/classification/cifar/cct-7-3x1_1xb128-310e_cifar100.py
"""

_base_ = [
    '../../_base_/models/compact.py',
    '../../_base_/datasets/cifar100_randaugment.py',
    '../../_base_/schedules/compact_310e.py',
]
num_classes = 100
model = dict(
    data_preprocessor=dict(num_classes=num_classes, mean=_base_.mean, std=_base_.std),
    head=dict(num_classes=num_classes),
    train_cfg=dict(augments=[dict(type='Mixup', alpha=0.8), dict(type='CutMix', alpha=1.0)]),
)
optim_wrapper = dict(optimizer=dict(lr=6e-4))
param_scheduler = _base_.param_scheduler
param_scheduler[0].update(warmup_start=1e-6)

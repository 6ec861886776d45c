"""CVT-7/4 on CIFAR-100, default PE. Expect 77.452 % top-1 (the LaPE paper's); not run by us.

mmlape train configs/compact/cvt-7-4_1xb128-310e_cifar100.py
"""

_base_ = [
    '../_base_/models/compact_cifar100.py',
    '../_base_/datasets/cifar100_randaugment.py',
    '../_base_/schedules/compact_310e.py',
    '../_base_/default_runtime.py',
]
model = dict(backbone=dict(arch='cvt-7/4'))
optim_wrapper = dict(optimizer=dict(lr=6e-4))
param_scheduler = [dict(type='mmlape.WarmupCosineLR', warmup=10, warmup_start=1e-6, eta_min=1e-5, T_max=300)]

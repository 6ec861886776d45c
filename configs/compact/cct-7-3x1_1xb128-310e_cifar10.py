"""CCT-7/3x1 on CIFAR-10, default PE. Expect 96.034 % top-1 (the LaPE paper's); not run by us.

mmlape train configs/compact/cct-7-3x1_1xb128-310e_cifar10.py
"""

_base_ = [
    '../_base_/models/compact.py',
    '../_base_/datasets/cifar10_randaugment.py',
    '../_base_/schedules/compact_310e.py',
    '../_base_/default_runtime.py',
]

"""A small DeiT on single digits, Dual PatchNorm: for the tests and docs/results/dpn.md.

mmlape train configs/deit/deit-mini-dpn_1xb32-5e_mini-digits.py
"""

_base_ = [
    '../_base_/models/deit_digits.py',
    '../_base_/datasets/mini_digits.py',
    '../_base_/schedules/mini_digits.py',
    '../_base_/default_runtime.py',
]
model = dict(backbone=dict(patch_norm='dual'))

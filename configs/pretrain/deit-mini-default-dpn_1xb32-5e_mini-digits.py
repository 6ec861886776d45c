"""A small DeiT on single digits, Dual PatchNorm: for the tests and docs/results/dpn.md.

tools/train.py configs/pretrain/deit-mini-default-dpn_1xb32-5e_mini-digits.py
"""

_base_ = './deit-mini-default_1xb32-5e_mini-digits.py'

model = dict(backbone=dict(patch_norm='dual'))

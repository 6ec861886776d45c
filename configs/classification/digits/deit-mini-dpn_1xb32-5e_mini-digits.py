"""A small DeiT on single digits, Dual PatchNorm: for the tests and docs/results/dpn.md.

tools/train.py configs/classification/digits/deit-mini-dpn_1xb32-5e_mini-digits.py
"""

_base_ = './deit-mini_1xb32-5e_mini-digits.py'

model = dict(backbone=dict(patch_norm='dual'))

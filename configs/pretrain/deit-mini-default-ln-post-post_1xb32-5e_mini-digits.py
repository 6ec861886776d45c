"""A small DeiT on single digits, norms after both branches: for the tests, about a minute and a half on two CPU cores.

tools/train.py configs/pretrain/deit-mini-default-ln-post-post_1xb32-5e_mini-digits.py
"""

_base_ = './deit-mini-default_1xb32-5e_mini-digits.py'

model = dict(backbone=dict(norm_placement='post'))

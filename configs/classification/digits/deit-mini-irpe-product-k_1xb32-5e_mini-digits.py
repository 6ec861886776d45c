"""A small DeiT on single digits, product contextual iRPE on k: about a minute and a half on two CPU cores.

tools/train.py configs/classification/digits/deit-mini-irpe-product-k_1xb32-5e_mini-digits.py
"""

_base_ = './deit-mini_1xb32-5e_mini-digits.py'

model = dict(backbone=dict(pe_type=['learnable', dict(type='irpe')]))

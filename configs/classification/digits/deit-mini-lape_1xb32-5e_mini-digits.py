"""A small DeiT on single digits, LaPE: for the demo and the tests, about a minute and a half on two CPU cores.

tools/train.py configs/classification/digits/deit-mini-lape_1xb32-5e_mini-digits.py
"""

_base_ = './deit-mini_1xb32-5e_mini-digits.py'

model = dict(backbone=dict(pe_joining='lape'))

"""A small DeiT on single digits, LaPE: for the demo and the tests, about a minute and a half on two CPU cores.

mmlape train configs/deit/deit-mini-lape_1xb32-5e_mini-digits.py
"""

_base_ = [
    '../_base_/models/deit_digits.py',
    '../_base_/datasets/mini_digits.py',
    '../_base_/schedules/mini_digits.py',
    '../_base_/default_runtime.py',
]
model = dict(backbone=dict(pe_joining='lape'))

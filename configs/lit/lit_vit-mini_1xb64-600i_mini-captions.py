"""LiT over the small DeiT of the digits, on captions of the mini scenes: about two minutes on two CPU cores.

mmlape train configs/lit/lit_vit-mini_1xb64-600i_mini-captions.py
"""

_base_ = [
    '../_base_/models/lit_mini.py',
    '../_base_/datasets/mini_captions.py',
    '../_base_/schedules/mini_lit.py',
    '../_base_/default_runtime.py',
]

"""Segmenter with a small DeiT on the mini data, LaPE: for the demo and the tests, not for comparing methods.

tools/train.py configs/segmentation/segmenter_deit-mini-lape_1xb16-250i_mini-ade.py
"""

_base_ = './segmenter_deit-mini_1xb16-250i_mini-ade.py'

model = dict(
    backbone=dict(
        pe_joining='lape', init_cfg=dict(checkpoint='work_dirs/deit-mini-lape_1xb32-5e_mini-digits/epoch_5.pth')
    )
)

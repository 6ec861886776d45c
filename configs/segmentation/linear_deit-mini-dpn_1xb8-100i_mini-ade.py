"""A small DeiT, Dual PatchNorm, and a linear layer on the mini data: for the tests, and docs/results/dpn.md.

tools/train.py configs/segmentation/linear_deit-mini-dpn_1xb8-100i_mini-ade.py
"""

_base_ = './linear_deit-mini_1xb8-100i_mini-ade.py'

weights = 'work_dirs/deit-mini-dpn_1xb32-5e_mini-digits/epoch_5.pth'
model = dict(backbone=dict(patch_norm='dual', init_cfg=dict(checkpoint=weights)))

"""Segmenter (mask transformer) over CeiT-S, LaPE; not run by us, no paper's figure.

tools/dist_train.sh configs/segmentation/segmenter_ceit-small-lape_4xb2-160k_ade20k.py 4
"""

_base_ = './segmenter_ceit-small_4xb2-160k_ade20k.py'

model = dict(backbone=dict(pe_joining='lape', init_cfg=dict(checkpoint='pretrained/ceit_small_lape.pth')))

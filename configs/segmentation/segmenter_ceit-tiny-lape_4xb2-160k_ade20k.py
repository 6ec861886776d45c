"""Segmenter (mask transformer) over CeiT-Ti, LaPE; not run by us, no paper's figure.

tools/dist_train.sh configs/segmentation/segmenter_ceit-tiny-lape_4xb2-160k_ade20k.py 4
"""

_base_ = './segmenter_ceit-tiny_4xb2-160k_ade20k.py'

model = dict(backbone=dict(pe_joining='lape', init_cfg=dict(checkpoint='pretrained/ceit_tiny_lape.pth')))

"""Mask R-CNN, Swin-S, LaPE. Not run by us; no paper's figure.

tools/dist_train.sh configs/detection/mask-rcnn_swin-small-lape_4xb4-3x_coco.py 4
"""

_base_ = './mask-rcnn_swin-small_4xb4-3x_coco.py'

model = dict(backbone=dict(pe_joining='lape', init_cfg=dict(checkpoint='pretrained/swin_small_lape.pth')))

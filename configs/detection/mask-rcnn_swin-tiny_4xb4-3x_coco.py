"""Mask R-CNN, Swin-T, default PE. Not run by us; no paper's figure.

tools/dist_train.sh configs/detection/mask-rcnn_swin-tiny_4xb4-3x_coco.py 4
"""

_base_ = './mask-rcnn_swin-tiny-rpe_4xb4-3x_coco.py'

model = dict(backbone=dict(pe_type='learnable', init_cfg=dict(checkpoint='pretrained/swin_tiny_default.pth')))

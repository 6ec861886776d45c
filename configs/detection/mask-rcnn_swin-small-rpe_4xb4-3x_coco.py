"""Mask R-CNN, Swin-S, relative bias only. Not run by us; no paper's figure.

tools/dist_train.sh configs/detection/mask-rcnn_swin-small-rpe_4xb4-3x_coco.py 4
"""

_base_ = './mask-rcnn_swin-tiny-rpe_4xb4-3x_coco.py'

checkpoint = 'pretrained/swin_small_patch4_window7_224.pth'
model = dict(backbone=dict(arch='small', init_cfg=dict(checkpoint=checkpoint)))

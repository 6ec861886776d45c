"""Mask R-CNN, ViT-Adapter-S, LaPE. Expect 48.7 box / 43.0 mask AP (the paper's, mean of five seeds); not run by us.

tools/dist_train.sh configs/detection/mask-rcnn_deit-small-adapter-lape_4xb2-3x_coco.py 4
"""

_base_ = './mask-rcnn_deit-small-adapter_4xb2-3x_coco.py'

model = dict(backbone=dict(pe_joining='lape', init_cfg=dict(checkpoint='pretrained/deit_small_lape.pth')))

"""Mask R-CNN, ViT-Adapter-S, LaPE and Dual PatchNorm. The papers give no figure for it; not run by us.

tools/dist_train.sh configs/detection/mask-rcnn_deit-small-adapter-lape-dpn_4xb2-3x_coco.py 4
"""

_base_ = './mask-rcnn_deit-small-adapter-lape_4xb2-3x_coco.py'

model = dict(backbone=dict(patch_norm='dual', init_cfg=dict(checkpoint='pretrained/deit_small_lape_dpn.pth')))

"""Mask R-CNN, ViT-Adapter-Ti, LaPE and Dual PatchNorm. The papers give no figure for it; not run by us.

tools/dist_train.sh configs/detection/mask-rcnn_deit-tiny-adapter-lape-dpn_4xb2-3x_coco.py 4
"""

_base_ = [
    '../_base_/models/mask_rcnn_vit-adapter.py',
    '../_base_/datasets/coco_instance.py',
    '../_base_/schedules/adamw_3x.py',
]
model = dict(
    backbone=dict(pe_joining='lape', patch_norm='dual', init_cfg=dict(checkpoint='pretrained/deit_tiny_lape_dpn.pth'))
)

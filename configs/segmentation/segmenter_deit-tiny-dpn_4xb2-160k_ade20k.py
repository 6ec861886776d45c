"""Seg-Ti-Mask/16, default PE and Dual PatchNorm. The papers give no figure for it; not run by us.

tools/dist_train.sh configs/segmentation/segmenter_deit-tiny-dpn_4xb2-160k_ade20k.py 4
"""

_base_ = [
    '../_base_/models/segmenter.py',
    '../_base_/datasets/ade20k.py',
    '../_base_/schedules/sgd_160k.py',
]
model = dict(backbone=dict(patch_norm='dual', init_cfg=dict(checkpoint='pretrained/deit_tiny_dpn.pth')))

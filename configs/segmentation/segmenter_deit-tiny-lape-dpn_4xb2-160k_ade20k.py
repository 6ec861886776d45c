"""Seg-Ti-Mask/16, LaPE and Dual PatchNorm. The papers give no figure for it; not run by us.

tools/dist_train.sh configs/segmentation/segmenter_deit-tiny-lape-dpn_4xb2-160k_ade20k.py 4
"""

_base_ = './segmenter_deit-tiny-lape_4xb2-160k_ade20k.py'

model = dict(backbone=dict(patch_norm='dual', init_cfg=dict(checkpoint='pretrained/deit_tiny_lape_dpn.pth')))

"""UperNet, ViT-Adapter-Ti, LaPE and Dual PatchNorm. The papers give no figure for it; not run by us.

tools/dist_train.sh configs/segmentation/upernet_deit-tiny-adapter-lape-dpn_4xb2-160k_ade20k.py 4
"""

_base_ = [
    '../_base_/models/upernet_vit-adapter.py',
    '../_base_/datasets/ade20k.py',
    '../_base_/schedules/adamw_160k.py',
]
model = dict(
    backbone=dict(pe_joining='lape', patch_norm='dual', init_cfg=dict(checkpoint='pretrained/deit_tiny_lape_dpn.pth'))
)

"""UperNet, ViT-Adapter-S, default PE and Dual PatchNorm. The papers give no figure for it; not run by us.

tools/dist_train.sh configs/segmentation/upernet_deit-small-adapter-dpn_4xb2-160k_ade20k.py 4
"""

_base_ = './upernet_deit-small-adapter_4xb2-160k_ade20k.py'

model = dict(backbone=dict(patch_norm='dual', init_cfg=dict(checkpoint='pretrained/deit_small_dpn.pth')))

"""UperNet, Swin-S, default PE. Not run by us; no paper's figure.

tools/dist_train.sh configs/segmentation/upernet_swin-small_4xb4-160k_ade20k.py 4
"""

_base_ = './upernet_swin-small-rpe_4xb4-160k_ade20k.py'

model = dict(backbone=dict(pe_type='learnable', init_cfg=dict(checkpoint='pretrained/swin_small_default.pth')))

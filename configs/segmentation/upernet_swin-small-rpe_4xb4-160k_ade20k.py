"""UperNet, Swin-S, relative bias only. Not run by us; no paper's figure.

tools/dist_train.sh configs/segmentation/upernet_swin-small-rpe_4xb4-160k_ade20k.py 4
"""

_base_ = './upernet_swin-tiny-rpe_4xb4-160k_ade20k.py'

checkpoint = 'pretrained/swin_small_patch4_window7_224.pth'
model = dict(backbone=dict(arch='small', init_cfg=dict(checkpoint=checkpoint)))

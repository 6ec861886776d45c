"""UperNet, Swin-T, LaPE. Not run by us; no paper's figure.

tools/dist_train.sh configs/segmentation/upernet_swin-tiny-lape_4xb4-160k_ade20k.py 4
"""

_base_ = './upernet_swin-tiny_4xb4-160k_ade20k.py'

model = dict(backbone=dict(pe_joining='lape', init_cfg=dict(checkpoint='pretrained/swin_tiny_lape.pth')))

"""UperNet, ViT-Adapter-S, LaPE. Expect 45.550 mIoU (the paper's, mean of five seeds); not run by us.

tools/dist_train.sh configs/segmentation/upernet_deit-small-adapter-lape_4xb2-160k_ade20k.py 4
"""

_base_ = './upernet_deit-small-adapter_4xb2-160k_ade20k.py'

model = dict(backbone=dict(pe_joining='lape', init_cfg=dict(checkpoint='pretrained/deit_small_lape.pth')))

"""UperNet, ViT-Adapter-S, LaPE, official rates. Expect 45.550 mIoU if the paper has them; not run by us.

tools/dist_train.sh configs/segmentation/upernet_deit-small-adapter-lape_4xb2-160k-official_ade20k.py 4
"""

_base_ = './upernet_deit-small-adapter_4xb2-160k-official_ade20k.py'

model = dict(backbone=dict(pe_joining='lape', init_cfg=dict(checkpoint='pretrained/deit_small_lape.pth')))

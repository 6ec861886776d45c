"""UperNet, ViT-Adapter-Ti, LaPE, official rates. Expect 41.520 mIoU if the paper has them; not run by us.

tools/dist_train.sh configs/segmentation/upernet_deit-tiny-adapter-lape_4xb2-160k-official_ade20k.py 4
"""

_base_ = './upernet_deit-tiny-adapter_4xb2-160k-official_ade20k.py'

model = dict(backbone=dict(pe_joining='lape', init_cfg=dict(checkpoint='pretrained/deit_tiny_lape.pth')))

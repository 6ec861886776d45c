"""UperNet, ViT-Adapter-Ti, LaPE. Expect 41.520 mIoU (the paper's, mean of five seeds); not run by us.

tools/dist_train.sh configs/upernet/upernet_deit-tiny-adapter-lape_4xb2-160k_ade20k.py 4
"""

_base_ = [
    '../_base_/models/upernet_vit-adapter.py',
    '../_base_/datasets/ade20k.py',
    '../_base_/schedules/adamw_160k.py',
    '../_base_/default_runtime.py',
]
model = dict(backbone=dict(pe_joining='lape', init_cfg=dict(checkpoint='pretrained/deit_tiny_lape.pth')))
val_dataloader = dict(dataset=dict(pipeline=_base_.stretched_pipeline))
test_dataloader = dict(dataset=dict(pipeline=_base_.stretched_pipeline))

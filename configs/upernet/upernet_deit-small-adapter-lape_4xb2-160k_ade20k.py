"""UperNet, ViT-Adapter-S, LaPE. Expect 45.550 mIoU (the paper's, mean of five seeds); not run by us.

tools/dist_train.sh configs/upernet/upernet_deit-small-adapter-lape_4xb2-160k_ade20k.py 4
"""

_base_ = [
    '../_base_/models/upernet_vit-adapter.py',
    '../_base_/datasets/ade20k.py',
    '../_base_/schedules/adamw_160k.py',
    '../_base_/default_runtime.py',
]
model = dict(
    backbone=dict(
        arch='deit-small',
        drop_path_rate=0.2,
        pe_joining='lape',
        init_cfg=dict(checkpoint='pretrained/deit_small_lape.pth'),
    ),
    decode_head=dict(in_channels=[384] * 4),
    auxiliary_head=dict(in_channels=384),
)
val_dataloader = dict(dataset=dict(pipeline=_base_.stretched_pipeline))
test_dataloader = dict(dataset=dict(pipeline=_base_.stretched_pipeline))

"""UperNet, ViT-Adapter-S, default PE. Expect 45.073 mIoU (the paper's, mean of five seeds); not run by us.

tools/dist_train.sh configs/upernet/upernet_deit-small-adapter_4xb2-160k_ade20k.py 4
"""

_base_ = [
    '../_base_/models/upernet_vit-adapter.py',
    '../_base_/datasets/ade20k.py',
    '../_base_/schedules/adamw_160k.py',
    '../_base_/default_runtime.py',
]
model = dict(
    backbone=dict(
        **_base_.sizes.small.backbone, init_cfg=dict(checkpoint='pretrained/deit_small_patch16_224-cd65a155.pth')
    ),
    decode_head=_base_.sizes.small.decode_head,
    auxiliary_head=_base_.sizes.small.auxiliary_head,
)
val_dataloader = dict(dataset=dict(pipeline=_base_.stretched_pipeline))
test_dataloader = dict(dataset=dict(pipeline=_base_.stretched_pipeline))

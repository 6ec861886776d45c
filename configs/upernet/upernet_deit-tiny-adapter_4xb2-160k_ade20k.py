"""UperNet, ViT-Adapter-Ti, default PE. Expect 40.660 mIoU (the paper's, mean of five seeds); not run by us.

tools/dist_train.sh configs/upernet/upernet_deit-tiny-adapter_4xb2-160k_ade20k.py 4
"""

_base_ = [
    '../_base_/models/upernet_vit-adapter.py',
    '../_base_/datasets/ade20k.py',
    '../_base_/schedules/adamw_160k.py',
    '../_base_/default_runtime.py',
]
val_dataloader = dict(dataset=dict(pipeline=_base_.stretched_pipeline))
test_dataloader = dict(dataset=dict(pipeline=_base_.stretched_pipeline))

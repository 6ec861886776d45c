"""UperNet, ViT-Adapter-Ti, default PE, official rates. Expect 40.660 mIoU if the paper has them; not run by us.

tools/dist_train.sh configs/segmentation/upernet_deit-tiny-adapter_4xb2-160k-official_ade20k.py 4
"""

_base_ = [
    '../_base_/models/upernet_vit-adapter.py',
    '../_base_/datasets/ade20k.py',
    '../_base_/schedules/adamw_160k.py',
]
optim_wrapper = dict(
    optimizer=dict(lr=12e-5, weight_decay=0.01),
    paramwise_cfg=dict(layer_decay_rate=0.95, flat_decay_mult=0.0),
)

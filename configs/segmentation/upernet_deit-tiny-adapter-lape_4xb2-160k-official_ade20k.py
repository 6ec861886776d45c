"""UperNet, ViT-Adapter-Ti, LaPE, official rates. Expect 41.520 mIoU if the paper has them; not run by us.

tools/dist_train.sh configs/segmentation/upernet_deit-tiny-adapter-lape_4xb2-160k-official_ade20k.py 4
"""

_base_ = [
    '../_base_/models/upernet_vit-adapter.py',
    '../_base_/datasets/ade20k.py',
    '../_base_/schedules/adamw_160k.py',
]
model = dict(backbone=dict(pe_joining='lape', init_cfg=dict(checkpoint='pretrained/deit_tiny_lape.pth')))
optim_wrapper = dict(
    optimizer=dict(lr=12e-5, weight_decay=0.01),
    paramwise_cfg=dict(layer_decay_rate=0.95, flat_decay_mult=0.0),
)

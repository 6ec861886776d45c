"""UperNet with a small ViT-Adapter on the mini data, LaPE: for the demo and the tests, not for comparing methods.

tools/train.py configs/segmentation/upernet_deit-mini-adapter-lape_1xb4-200i_mini-ade.py
"""

_base_ = [
    '../_base_/models/upernet_vit-adapter.py',
    '../_base_/models/deit_mini.py',
    '../_base_/datasets/mini_ade.py',
    '../_base_/schedules/mini.py',
]
embed_dims = _base_.deit_mini.embed_dims
channels = 64
num_classes = len(_base_.classes)
model = dict(
    data_preprocessor=dict(size=_base_.crop_size),
    backbone=dict(
        arch=dict(_delete_=True, **_base_.deit_mini),
        **_base_.mini_adapter,
        pe_joining='lape',
        init_cfg=dict(checkpoint='work_dirs/deit-mini-lape_1xb32-5e_mini-digits/epoch_5.pth'),
    ),
    decode_head=dict(in_channels=[embed_dims] * 4, channels=channels, num_classes=num_classes),
    auxiliary_head=dict(in_channels=embed_dims, channels=channels, num_classes=num_classes),
    test_cfg=dict(mode='whole'),
)
train_cfg = dict(max_iters=200, val_interval=100)
default_hooks = dict(checkpoint=dict(save_best='mIoU', rule='greater'))

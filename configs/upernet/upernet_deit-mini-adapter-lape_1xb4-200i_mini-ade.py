"""UperNet with a small ViT-Adapter on the mini data, LaPE: for the demo and the tests, not for comparing methods.

mmlape train configs/upernet/upernet_deit-mini-adapter-lape_1xb4-200i_mini-ade.py
"""

_base_ = [
    '../_base_/models/upernet_vit-adapter.py',
    '../_base_/models/mini_vit-adapter.py',
    '../_base_/datasets/mini_ade.py',
    '../_base_/schedules/mini.py',
    '../_base_/default_runtime.py',
]
embed_dims = _base_.embed_dims
channels = 64
num_classes = len(_base_.classes)
model = dict(
    data_preprocessor=dict(size=(128, 128)),
    backbone=dict(arch=dict(_delete_=True, **_base_.mini_arch), **_base_.mini_adapter),
    decode_head=dict(in_channels=[embed_dims] * 4, channels=channels, num_classes=num_classes),
    auxiliary_head=dict(in_channels=embed_dims, channels=channels, num_classes=num_classes),
    test_cfg=dict(_delete_=True, mode='whole'),
)
train_cfg = dict(max_iters=200, val_interval=67)
default_hooks = dict(checkpoint=dict(save_best='mIoU', rule='greater'))

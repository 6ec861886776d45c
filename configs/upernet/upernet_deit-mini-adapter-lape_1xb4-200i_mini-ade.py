"""UperNet with a small ViT-Adapter on the mini data, LaPE: for the demo and the tests, not for comparing methods.

mmlape train configs/upernet/upernet_deit-mini-adapter-lape_1xb4-200i_mini-ade.py
"""

_base_ = [
    '../_base_/models/upernet_vit-adapter.py',
    '../_base_/datasets/mini_ade.py',
    '../_base_/schedules/mini.py',
    '../_base_/default_runtime.py',
]
embed_dims = 128
channels = 64
num_classes = len(_base_.classes)
model = dict(
    data_preprocessor=dict(size=(128, 128)),
    backbone=dict(
        # the small DeiT of `_base_/models/deit_digits.py`: attention in windows of its grid, the PE repeated
        arch=dict(
            _delete_=True, embed_dims=embed_dims, num_layers=4, num_heads=4, feedforward_channels=4 * embed_dims
        ),
        img_size=64,
        interpolate_mode='tile',
        window_attn=True,
        window_size=4,
        drop_path_rate=0.0,
        conv_inplane=16,
        deform_num_heads=4,
        pe_joining='lape',
        init_cfg=dict(checkpoint='work_dirs/deit-mini-lape_1xb32-5e_mini-digits/epoch_5.pth'),
    ),
    decode_head=dict(in_channels=[embed_dims] * 4, channels=channels, num_classes=num_classes),
    auxiliary_head=dict(in_channels=embed_dims, channels=channels, num_classes=num_classes),
    test_cfg=dict(_delete_=True, mode='whole'),
)
train_cfg = dict(max_iters=200, val_interval=67)
default_hooks = dict(checkpoint=dict(save_best='mIoU', rule='greater'))

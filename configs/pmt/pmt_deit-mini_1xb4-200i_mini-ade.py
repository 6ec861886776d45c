"""PMT's plain mask decoder over the small DeiT, frozen, on the mini data: for the tests, not for comparing methods.

mmlape train configs/pmt/pmt_deit-mini_1xb4-200i_mini-ade.py
"""

_base_ = [
    '../_base_/models/pmt_timm.py',
    '../_base_/datasets/mini_ade.py',
    '../_base_/schedules/mini.py',
    '../_base_/default_runtime.py',
]
embed_dims = 128
model = dict(
    data_preprocessor=dict(size=(128, 128), test_cfg=dict(size=(128, 128))),
    backbone=dict(
        _delete_=True,
        type='mmlape.VisionTransformer',
        arch=dict(embed_dims=embed_dims, num_layers=4, num_heads=4, feedforward_channels=4 * embed_dims),
        patch_size=16,
        out_indices=[1, 3],
        out_type='featmap',
        with_prefix_pe=False,
        with_cls_token=False,
        final_norm='every',
        img_size=64,
        interpolate_mode='tile',
        window_attn=True,
        window_size=4,
        drop_path_rate=0.0,
        frozen_stages=4,
        init_cfg=dict(type='Pretrained', checkpoint='work_dirs/deit-mini_1xb32-5e_mini-digits/epoch_5.pth'),
    ),
    decode_head=dict(
        in_channels=[embed_dims] * 2,
        num_classes=len(_base_.classes),
        num_heads=4,
        num_prefix=0,
        num_queries=20,
        num_layers=2,
        feedforward_channels=2 * embed_dims,
        norm_cfg=dict(type='BN', requires_grad=True),
        train_cfg=dict(num_points=1024),
    ),
    test_cfg=dict(crop_size=(128, 128), stride=(96, 96)),
)
custom_hooks = [dict(type='mmlape.MaskAnnealingHook', starts=[0.0, 0.3], ends=[0.4, 0.8])]
train_cfg = dict(max_iters=200, val_interval=67)
default_hooks = dict(checkpoint=dict(save_best='mIoU', rule='greater'))

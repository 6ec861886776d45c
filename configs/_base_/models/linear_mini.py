"""The small DeiT of `deit_digits.py` and a linear layer on its patch tokens, for twelve classes of the mini data."""

_base_ = 'linear_vit.py'

embed_dims = 128
model = dict(
    data_preprocessor=dict(size=(128, 128)),
    backbone=dict(
        arch=dict(
            _delete_=True, embed_dims=embed_dims, num_layers=4, num_heads=4, feedforward_channels=4 * embed_dims
        ),
        with_cls_token=False,
        img_size=64,
        interpolate_mode='tile',
        act_cfg=dict(_delete_=True, type='GELU'),
        window_attn=True,
        window_size=4,
        drop_path_rate=0.0,
        init_cfg=dict(checkpoint='work_dirs/deit-mini_1xb32-5e_mini-digits/epoch_5.pth'),
    ),
    decode_head=dict(in_channels=embed_dims, channels=embed_dims, num_classes=12),
    test_cfg=dict(_delete_=True, mode='whole'),
)

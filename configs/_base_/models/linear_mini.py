"""The small DeiT of `deit_digits.py` and a linear layer on its patch tokens, for twelve classes of the mini data."""

embed_dims = 128
model = dict(
    type='EncoderDecoder',
    # images are normalised as the weights expect, and padded to the crop
    data_preprocessor=dict(
        type='SegDataPreProcessor',
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        bgr_to_rgb=True,
        pad_val=0,
        seg_pad_val=255,
        size=(128, 128),
    ),
    # attention in windows of the pretrained size: its PE, which is repeated, fits every window
    backbone=dict(
        type='mmlape.VisionTransformer',
        arch=dict(embed_dims=embed_dims, num_layers=4, num_heads=4, feedforward_channels=4 * embed_dims),
        patch_size=16,
        out_type='featmap',
        with_prefix_pe=False,
        final_norm=False,
        pe_joining='default',
        with_cls_token=False,
        img_size=64,
        interpolate_mode='tile',
        act_cfg=dict(type='GELU'),
        window_attn=True,
        window_size=4,
        drop_path_rate=0.0,
        init_cfg=dict(type='Pretrained', checkpoint='work_dirs/deit-mini_1xb32-5e_mini-digits/epoch_5.pth'),
    ),
    decode_head=dict(
        type='FCNHead',
        num_convs=0,
        concat_input=False,
        in_index=0,
        in_channels=embed_dims,
        channels=embed_dims,
        num_classes=12,
        dropout_ratio=0.0,
        align_corners=False,
        loss_decode=dict(type='CrossEntropyLoss', avg_non_ignore=True, loss_weight=1.0),
    ),
    train_cfg=dict(),
    test_cfg=dict(mode='whole'),
)

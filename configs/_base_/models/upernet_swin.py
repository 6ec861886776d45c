"""UperNet over Swin-T, for 150 classes, with an auxiliary FCN head on the map of stride 16.

Swin-S has the same widths.
"""

embed_dims = 96
shared_head = dict(
    num_classes=150, dropout_ratio=0.1, norm_cfg=dict(type='SyncBN', requires_grad=True), align_corners=False
)
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
        size=(512, 512),
    ),
    backbone=dict(
        type='mmlape.SwinTransformer',
        arch='tiny',
        pe_type='rpe',
        drop_path_rate=0.3,
        out_indices=(0, 1, 2, 3),
        out_type='featmap',
        pad_small_map=True,
        init_cfg=dict(type='Pretrained', checkpoint='pretrained/swin_tiny_patch4_window7_224.pth'),
    ),
    decode_head=dict(
        type='UPerHead',
        in_index=[0, 1, 2, 3],
        channels=512,
        pool_scales=(1, 2, 3, 6),
        loss_decode=dict(type='CrossEntropyLoss', loss_weight=1.0),
        **shared_head,
        in_channels=[embed_dims * 2**stage for stage in range(4)],
    ),
    auxiliary_head=dict(
        type='FCNHead',
        in_index=2,
        channels=256,
        num_convs=1,
        concat_input=False,
        loss_decode=dict(type='CrossEntropyLoss', loss_weight=0.4),
        **shared_head,
        in_channels=4 * embed_dims,
    ),
    train_cfg=dict(),
    test_cfg=dict(mode='whole'),
)

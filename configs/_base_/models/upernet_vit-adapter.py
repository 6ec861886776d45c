"""UperNet over ViT-Adapter-Ti, for 150 classes, with an auxiliary FCN head on the map of stride 16."""

shared_head = dict(
    num_classes=150, dropout_ratio=0.1, norm_cfg=dict(type='SyncBN', requires_grad=True), align_corners=False
)
model = dict(
    type='EncoderDecoder',
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
        type='mmlape.ViTAdapter',
        pe_joining='default',
        vit_feature_source='interaction',
        init_cfg=dict(type='Pretrained', checkpoint='pretrained/deit_tiny_patch16_224-a1311bcf.pth'),
        arch='deit-tiny',
        drop_path_rate=0.1,
    ),
    decode_head=dict(
        type='UPerHead',
        in_index=[0, 1, 2, 3],
        channels=512,
        pool_scales=(1, 2, 3, 6),
        loss_decode=dict(type='CrossEntropyLoss', loss_weight=1.0),
        **shared_head,
        in_channels=[192] * 4,
    ),
    auxiliary_head=dict(
        type='FCNHead',
        in_index=2,
        channels=256,
        num_convs=1,
        concat_input=False,
        loss_decode=dict(type='CrossEntropyLoss', loss_weight=0.4),
        **shared_head,
        in_channels=192,
    ),
    train_cfg=dict(),
    test_cfg=dict(mode='slide', crop_size=(512, 512), stride=(341, 341)),
)

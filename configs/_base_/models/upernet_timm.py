"""UperNet over DINOv2-S of timm and its adapter, for 150 classes.

Configs follow timm: layer decay, and no weight decay on vectors, position embeddings and prefix tokens. The rate of
the layer decay is our choice.
"""

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
        type='mmlape.TimmViTAdapter',
        vit=dict(model_name='vit_small_patch14_reg4_dinov2.lvd142m', drop_path_rate=0.2),
        vit_feature_source='interaction',
        init_cfg=dict(type='Pretrained', checkpoint='hf-hub:timm/vit_small_patch14_reg4_dinov2.lvd142m'),
    ),
    decode_head=dict(
        type='UPerHead',
        in_index=[0, 1, 2, 3],
        channels=512,
        pool_scales=(1, 2, 3, 6),
        loss_decode=dict(type='CrossEntropyLoss', loss_weight=1.0),
        **shared_head,
        in_channels=[384] * 4,
    ),
    auxiliary_head=dict(
        type='FCNHead',
        in_index=2,
        channels=256,
        num_convs=1,
        concat_input=False,
        loss_decode=dict(type='CrossEntropyLoss', loss_weight=0.4),
        **shared_head,
        in_channels=384,
    ),
    train_cfg=dict(),
    test_cfg=dict(mode='slide', crop_size=(512, 512), stride=(341, 341)),
)

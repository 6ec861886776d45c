"""ViT-B/16 and one linear layer on its last layer's patch tokens, which no norm precedes, for 150 classes."""

embed_dims = 768
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
        type='mmlape.VisionTransformer',
        arch='deit-base',
        img_size=(512, 512),
        patch_size=16,
        out_type='featmap',
        with_prefix_pe=False,
        pe_joining='default',
        final_norm=False,
        act_cfg=dict(type='GELU', approximate='tanh'),
        interpolate_mode='bilinear',
        drop_path_rate=0.1,
        init_cfg=dict(type='Pretrained', checkpoint='pretrained/vit_base_p16.pth'),
    ),
    decode_head=dict(
        type='FCNHead',
        num_convs=0,
        concat_input=False,
        in_index=0,
        in_channels=embed_dims,
        channels=embed_dims,
        num_classes=150,
        dropout_ratio=0.0,
        align_corners=False,
        loss_decode=dict(type='CrossEntropyLoss', avg_non_ignore=True, loss_weight=1.0),
    ),
    train_cfg=dict(),
    test_cfg=dict(mode='slide', crop_size=(512, 512), stride=(341, 341)),
)

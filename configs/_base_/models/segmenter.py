"""Seg-Ti-Mask/16 for 150 classes: DeiT-Ti and a mask transformer of two layers."""

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
        arch='deit-tiny',
        img_size=(512, 512),
        patch_size=16,
        out_type='featmap',
        pe_joining='default',
        drop_path_rate=0.1,
        init_cfg=dict(type='Pretrained', checkpoint='pretrained/deit_tiny_patch16_224-a1311bcf.pth'),
    ),
    decode_head=dict(
        type='SegmenterMaskTransformerHead',
        num_layers=2,
        num_classes=150,
        drop_rate=0.1,
        attn_drop_rate=0.1,
        drop_path_rate=0.0,
        # mmsegmentation's dropout_ratio belongs to a layer that this head does not have
        dropout_ratio=0.0,
        # the mean over labelled pixels, as in the public Segmenter
        loss_decode=dict(type='CrossEntropyLoss', avg_non_ignore=True, loss_weight=1.0),
        in_channels=192,
        channels=192,
        embed_dims=192,
        num_heads=3,  # heads of 64
    ),
    train_cfg=dict(),
    test_cfg=dict(mode='slide', crop_size=(512, 512), stride=(512, 512)),
)

"""DeiT-Ti with patches of 4 on images of 32 pixels, for ten classes."""

model = dict(
    type='ImageClassifier',
    data_preprocessor=dict(num_classes=10, mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375], to_rgb=True),
    backbone=dict(
        type='mmlape.VisionTransformer',
        arch='deit-tiny',
        img_size=32,
        patch_size=4,
        out_type='cls_token',
        pe_joining='default',
        drop_path_rate=0.1,
    ),
    head=dict(
        type='VisionTransformerClsHead',
        num_classes=10,
        in_channels=192,
        loss=dict(type='LabelSmoothLoss', label_smooth_val=0.1, mode='original'),
        init_cfg=dict(type='TruncNormal', layer='Linear', std=0.02),
    ),
)

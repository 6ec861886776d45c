"""T2T-ViT-7 as an image classifier for 1000 classes, trained with mixup and CutMix."""

model = dict(
    type='ImageClassifier',
    data_preprocessor=dict(num_classes=1000, mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375], to_rgb=True),
    backbone=dict(
        type='mmlape.T2TViT',
        arch='t2t-vit-7',
        img_size=224,
        out_type='cls_token',
        pe_type='sincos1d',
        pe_joining='default',
        drop_path_rate=0.1,
    ),
    head=dict(
        type='VisionTransformerClsHead',
        num_classes=1000,
        in_channels=256,
        loss=dict(type='LabelSmoothLoss', label_smooth_val=0.1, mode='original'),
        init_cfg=dict(type='TruncNormal', layer='Linear', std=0.02),
    ),
    train_cfg=dict(augments=[dict(type='Mixup', alpha=0.8), dict(type='CutMix', alpha=1.0)]),
)

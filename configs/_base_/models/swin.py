"""Swin-T as an image classifier, for 1000 classes; Swin-S ends as wide."""

model = dict(
    type='ImageClassifier',
    data_preprocessor=dict(num_classes=1000, mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375], to_rgb=True),
    backbone=dict(type='mmlape.SwinTransformer', img_size=224, arch='tiny', pe_type='rpe', drop_path_rate=0.2),
    head=dict(
        type='LinearClsHead',
        num_classes=1000,
        in_channels=768,
        loss=dict(type='LabelSmoothLoss', label_smooth_val=0.1, mode='original'),
        init_cfg=dict(type='TruncNormal', layer='Linear', std=0.02),
    ),
    train_cfg=dict(augments=[dict(type='Mixup', alpha=0.8), dict(type='CutMix', alpha=1.0)]),
)

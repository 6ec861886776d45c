"""CeiT-Ti as an image classifier for 1000 classes, trained with mixup and CutMix."""

model = dict(
    type='ImageClassifier',
    data_preprocessor=dict(num_classes=1000, mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375], to_rgb=True),
    backbone=dict(
        type='mmlape.CeiT', img_size=224, out_type='cls_token', pe_joining='default', drop_path_rate=0.1, arch='tiny'
    ),
    head=dict(
        type='VisionTransformerClsHead',
        num_classes=1000,
        loss=dict(type='LabelSmoothLoss', label_smooth_val=0.1, mode='original'),
        init_cfg=dict(type='TruncNormal', layer='Linear', std=0.02),
        in_channels=192,
    ),
    train_cfg=dict(augments=[dict(type='Mixup', alpha=0.8), dict(type='CutMix', alpha=1.0)]),
)

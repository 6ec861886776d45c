"""CCT-7/3x1 as an image classifier of ten classes, trained with mixup and CutMix; other members differ in `arch`."""

model = dict(
    type='ImageClassifier',
    data_preprocessor=dict(num_classes=10, mean=[125.307, 122.961, 113.8575], std=[62.985, 62.0925, 66.708]),
    backbone=dict(
        type='mmlape.CompactTransformer',
        arch='cct-7/3x1',
        img_size=32,
        pe_joining='default',
        attn_drop_rate=0.1,
        drop_path_rate=0.1,
    ),
    head=dict(
        type='LinearClsHead',
        num_classes=10,
        in_channels=256,
        loss=dict(type='LabelSmoothLoss', label_smooth_val=0.1, mode='original'),
        init_cfg=dict(type='TruncNormal', layer='Linear', std=0.02),
    ),
    train_cfg=dict(augments=[dict(type='Mixup', alpha=0.8), dict(type='CutMix', alpha=1.0)]),
)

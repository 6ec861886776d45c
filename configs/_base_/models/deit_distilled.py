"""DeiT-Ti with a distillation token as an image classifier for 1000 classes.

The teacher is timm's RegNetY-16GF; set `model.teacher_checkpoint` to its file, or `model.teacher` to another one.
"""

model = dict(
    type='mmlape.DistilledImageClassifier',
    data_preprocessor=dict(num_classes=1000, mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375], to_rgb=True),
    backbone=dict(
        type='mmlape.DistilledVisionTransformer',
        img_size=224,
        patch_size=16,
        out_type='cls_token',
        pe_joining='default',
        drop_path_rate=0.1,
        arch='deit-tiny',
    ),
    head=dict(
        type='mmlape.DistilledClsHead',
        num_classes=1000,
        loss=dict(type='LabelSmoothLoss', label_smooth_val=0.1, mode='original'),
        init_cfg=dict(type='TruncNormal', layer='Linear', std=0.02),
        in_channels=192,
    ),
    teacher=dict(type='TimmClassifier', model_name='regnety_160'),
    teacher_checkpoint='pretrained/regnety_160.pth',
    train_cfg=dict(augments=[dict(type='Mixup', alpha=0.8), dict(type='CutMix', alpha=1.0)]),
)

"""COCO 2017 with instance masks: DETR's multi-scale resizing, then a crop of 1024; two images per GPU.

`data_root` is the only path: `--cfg-options data_root=DIR/` changes it everywhere.
"""

_base_ = 'coco.py'

crop_size = (1024, 1024)
longest_side = 1333
scales = [(side, longest_side) for side in range(480, 801, 32)]

resized = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations', with_bbox=True, with_mask=True),
    dict(type='RandomFlip', prob=0.5),
    dict(
        type='RandomChoice',
        transforms=[
            [dict(type='RandomChoiceResize', scales=scales, keep_ratio=True)],
            [
                dict(
                    type='RandomChoiceResize',
                    scales=[(side, longest_side) for side in (400, 500, 600)],
                    keep_ratio=True,
                ),
                dict(type='RandomCrop', crop_type='absolute_range', crop_size=(384, 600), allow_negative_crop=True),
                dict(type='RandomChoiceResize', scales=scales, keep_ratio=True),
            ],
        ],
    ),
]
last_crop = dict(type='RandomCrop', crop_type='absolute_range', crop_size=crop_size, allow_negative_crop=True)
train_pipeline = [*resized, last_crop, dict(type='PackDetInputs')]
uncropped_pipeline = [*resized, dict(type='PackDetInputs')]  # Swin's public recipe has no last crop
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=(longest_side, 800), keep_ratio=True),
    dict(type='LoadAnnotations', with_bbox=True, with_mask=True),
    dict(type='PackDetInputs', meta_keys=('img_id', 'img_path', 'ori_shape', 'img_shape', 'scale_factor')),
]
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
val_evaluator = dict(metric=['bbox', 'segm'])
test_evaluator = val_evaluator

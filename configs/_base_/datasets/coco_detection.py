"""COCO 2017 with boxes, DETR's pipeline: that of `coco_instance.py` without masks and the last crop.

As in DETR's code, the longer side is not limited before the random crop.

`data_root` is the only path: `--cfg-options data_root=DIR/` changes it everywhere.
"""

_base_ = 'coco.py'

img_size = (800, 1333)
longest_side = 1333
scales = [(side, longest_side) for side in range(480, 801, 32)]

train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations', with_bbox=True),
    dict(type='RandomFlip', prob=0.5),
    dict(
        type='RandomChoice',
        transforms=[
            [dict(type='RandomChoiceResize', scales=scales, keep_ratio=True)],
            [
                dict(type='RandomChoiceResize', scales=[(side, 10**6) for side in (400, 500, 600)], keep_ratio=True),
                dict(type='RandomCrop', crop_type='absolute_range', crop_size=(384, 600), allow_negative_crop=True),
                dict(type='RandomChoiceResize', scales=scales, keep_ratio=True),
            ],
        ],
    ),
    dict(type='PackDetInputs'),
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=(longest_side, 800), keep_ratio=True),
    dict(type='LoadAnnotations', with_bbox=True),
    dict(type='PackDetInputs', meta_keys=('img_id', 'img_path', 'ori_shape', 'img_shape', 'scale_factor')),
]
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
val_evaluator = dict(metric='bbox')
test_evaluator = val_evaluator
